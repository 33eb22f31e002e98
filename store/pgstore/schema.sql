-- The tables of a store, format 3. The name quipu stands for the schema's name.
-- Its functions are in functions.sql.

-- What there is one of. Writers up to floor that have no mark are retired. The
-- window of tokens is that of the first store that was opened.
create table quipu.meta (
    format int not null,
    id uuid not null default gen_random_uuid(),
    floor bigint not null default 0,
    window_ms bigint
);
insert into quipu.meta (format) values (3);

-- A batch draws as many numbers as it has changes to one cell. The version of a
-- cell becomes the last of them, or what it was and as many more, if that is higher:
-- so it only rises. It gets ahead of the sequence by no more than what others have
-- drawn meanwhile. Before a cell goes, the sequence is raised to its version, and
-- then one is drawn from the other: whoever makes a cell with a number drawn before
-- that sees it. That needs sequences without cache, and one that was drawn from: the
-- first number can't be seen to go.
create sequence quipu.version as bigint cache 1;
create sequence quipu.removal as bigint cache 1;
select nextval('quipu.removal');

-- Few cells have a term: above 0 it is their deadline, below 0 the negative of
-- their layout. Room is left in every page, and nothing that an add changes is
-- indexed, so that an update stays in its page and touches no index.
create table quipu.cells (
    ns bytea not null,
    key bytea not null,
    value bigint not null,
    version bigint not null,
    term bigint,
    primary key (ns, key)
) with (fillfactor = 70);
create index cell_due on quipu.cells (term) where term > 0;

-- The last batch of each writer. Its results are kept as they are, or, if every
-- delta was a plain add, as what can't be computed from the batch: the version of
-- most cells, which of them have others, and these; and what was asked for.
create table quipu.mark (
    writer bigint primary key,
    seq bigint not null,
    digest bigint not null,
    at_ms bigint not null,
    deltas bigint not null,
    total bigint not null,
    proof bigint not null,
    results bytea,
    version bigint,
    odd int[],
    versions bigint[],
    afters bigint[],
    terms bigint[],
    fresh boolean[]
) with (fillfactor = 50);
-- They are read once or never: compressing them costs more than it saves.
alter table quipu.mark alter odd set storage external, alter versions set storage external, alter afters set storage external,
    alter terms set storage external, alter fresh set storage external;

-- What was changed without a mark. Each transaction adds to the slot of its
-- backend, so that they do not wait for each other.
create table quipu.tally (
    slot int primary key,
    at_ms bigint not null default 0,
    deltas bigint not null default 0,
    total bigint not null default 0,
    proof bigint not null default 0
) with (fillfactor = 20);
insert into quipu.tally (slot) select generate_series(0, 31);

-- How many keys (generation 0) and tokens (by their generation) a namespace has,
-- and how many of these were refused (the negative of it): the sum over the slots.
create table quipu.space (
    ns bytea not null,
    gen int not null,
    slot int not null,
    n bigint not null,
    primary key (ns, gen, slot)
) with (fillfactor = 50);

-- Tokens are in tables by generation, so that they can be dropped by the table.
-- New ones go to the last generation. Whoever adds one holds the lock {{tokens}}
-- shared until the end of its transaction, and whoever begins a generation holds
-- it alone: so a token can't be in two generations. Op 0 is a settled token. One of
-- a write that was refused has the outcome, and which rider of its event refused it.
create table quipu.generation (
    gen int primary key,
    from_ms bigint not null
);
insert into quipu.generation values (1, floor(extract(epoch from clock_timestamp()) * 1000)::bigint);
create table quipu.token (
    gen int not null,
    ns bytea not null,
    key bytea not null,
    token bytea not null,
    op smallint not null,
    n bigint not null,
    want boolean not null,
    digest bigint not null,
    at_ms bigint not null,
    before bigint not null,
    after bigint not null,
    version bigint not null,
    outcome smallint not null default 1,
    refused smallint not null default 0,
    primary key (ns, key, token, gen)
) partition by list (gen);
create index token_at on quipu.token (at_ms);
create table quipu.token_1 partition of quipu.token for values in (1);

-- Adds made by quipu.add in transactions of others, until they are folded into
-- their cells; and those that could not be, with the outcome that says why.
create table quipu.pending (
    id bigint generated always as identity primary key,
    ns bytea not null,
    key bytea not null,
    delta bigint not null,
    token_gen int,
    at_ms bigint not null,
    token bytea
);
create index pending_cell on quipu.pending (ns, key);
create table quipu.pending_refused (
    id bigint primary key,
    ns bytea not null,
    key bytea not null,
    delta bigint not null,
    outcome smallint not null,
    at_ms bigint not null
);
