-- What format 3 has and format 2 has not. It is made after the other tables, and by the
-- migration.

-- For tools: what it shows may be read as it was. It has no versions and takes no
-- rows, so that a server of format 2 that still runs is refused, whatever it asks for.
create view quipu.cell as select ns, key, value, term from quipu.cells offset 0;

-- The parts of counters, by the bytes of their rows: what was counted in an hour, for
-- example. Those that are kept for a time are in a table for each epoch, so that they
-- can be dropped by the table; the epoch of all others is -1. The value of bytes is
-- their number. A part is guarded by the lock on its cell.
create table quipu.part (
    epoch bigint not null,
    ns bytea not null,
    place bytea not null,
    value bigint not null,
    bytes bytea,
    primary key (ns, place, epoch)
) partition by list (epoch);
create table quipu.part_none partition of quipu.part for values in (-1) with (fillfactor = 70);

-- What was changed in the parts of an epoch, for each kind and view. When the epoch goes,
-- it is added to that of all that have gone, whose epoch is -1.
create table quipu.part_tally (
    ns bytea not null,
    kind smallint not null,
    view int not null,
    epoch bigint not null,
    slot int not null,
    total bigint not null,
    proof bigint not null,
    primary key (ns, kind, view, epoch, slot)
) with (fillfactor = 50);

-- Below what a batch is refused: the highest book of a namespace (kind 0) that one was
-- made under, and for each kind and view the first epoch that is kept. Whoever judges a
-- batch by it locks the rows that refuse it. There are none, as a rule, but that holds the table
-- in a mode that conflicts with that of whoever raises a fence: so when one is
-- raised, no batch that was judged before is under way. A statement takes this mode
-- before its snapshot. Nobody else does, not even a backup.
create table quipu.fence (
    ns bytea not null,
    kind smallint not null,
    view int not null,
    least bigint not null,
    primary key (ns, kind, view)
);

-- A batch of plain adds, and what they add to parts.
create type quipu.adds as (
    -- The mark, and what was changed; whether a value is wanted; whether it need not be on
    -- disk; the time, if it is not the server's.
    writer bigint, prev bigint, seq bigint, digest bigint,
    deltas bigint, total bigint, proof bigint,
    want boolean, lazy boolean, now bigint,
    -- The cells, sorted, each once: what is added, by how many deltas at most, and what
    -- the layout must be, -1 if that does not matter; null if it does for none.
    ns bytea[], key bytea[], n bigint[], most bigint, laid bigint[],
    -- The namespaces, the locks on them, and how many keys one may have before its limit
    -- must be looked at closely.
    spaces bytea[], locks bigint[], room bigint,
    -- The fences that it must not be below. For a book, it must be the one, if it has any.
    fence_ns bytea[], fence_kind smallint[], fence_view int[], fence_at bigint[], booked boolean,
    -- The parts, sorted, each once, and what is added; null if there are none. Of each
    -- cell that has any, the part that has the book that it was written under, which must
    -- not be lower; null if that does not matter.
    part_epoch bigint[], part_ns bytea[], part_place bytea[], part_n bigint[],
    book_ns bytea[], book_place bytea[], book_at bigint[],
    -- What is changed in each epoch.
    tally_ns bytea[], tally_kind smallint[], tally_view int[], tally_epoch bigint[], tally_total bigint[], tally_proof bigint[]
);

-- What became of it; no version if it has to be decided outside.
create type quipu.made as (
    took bigint, version bigint, odd int[], versions bigint[], afters bigint[], terms bigint[], fresh boolean[]
);
