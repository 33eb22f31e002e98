-- The tables of a store, format 2. The name quipu stands for the schema's name.
-- Its functions are in functions.sql.

-- What there is one of. Writers up to floor that have no mark are retired. The
-- window of tokens is that of the first store that was opened.
create table quipu.meta (
    format int not null,
    id uuid not null default gen_random_uuid(),
    floor bigint not null default 0,
    window_ms bigint
);
insert into quipu.meta (format) values (2);

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
create table quipu.cell (
    ns bytea not null,
    key bytea not null,
    value bigint not null,
    version bigint not null,
    term bigint,
    primary key (ns, key)
) with (fillfactor = 70);
create index cell_due on quipu.cell (term) where term > 0;

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

-- How many keys (generation 0) and tokens (by their generation) a namespace has:
-- the sum over the slots.
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
-- it alone: so a token can't be in two generations. Op 0 is a settled token.
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
-- The functions of a store. The name quipu stands for the schema's name, {{tokens}}
-- for the number of the lock on the generations of tokens, and {{spaces}} for that
-- on the number of namespaces.

create or replace function quipu.now_ms() returns bigint language sql volatile
as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- wrap is the sum of two integers of 64 bits, which wraps around.
create or replace function quipu.wrap(a bigint, b bigint) returns bigint language sql immutable
as $$ select (mod(a::numeric + b + 27670116110564327424, 18446744073709551616) - 9223372036854775808)::bigint $$;

-- draw draws versions and returns the last. It assigns the others, since to perform
-- a statement for each would take several times as long.
create or replace function quipu.draw(n bigint) returns bigint language plpgsql as $$
declare
    _other bigint;
begin
    for i in 2 .. n loop
        _other := nextval('quipu.version');
    end loop;
    return nextval('quipu.version');
end $$;

-- plain applies a batch of plain adds to cells, sorted, each once: _n is what is
-- added to a cell, by _most deltas at most, and _laid what its layout must be, -1 if that does
-- not matter; null if it does for none. If the mark is another it returns nothing;
-- whatever else is unusual raises QP001. Either way nothing is changed, and the
-- batch is decided outside. _room is how many keys a namespace may have before its
-- limit must be looked at closely. _took is how long it took to lock and change the
-- cells, in microseconds. What it takes and returns stands again in quietly and
-- tokened: older programs call them as they are, so no type can take its place.
create or replace function quipu.plain(
    _writer bigint, _prev bigint, _seq bigint, _digest bigint,
    _ns bytea[], _key bytea[], _n bigint[], _most bigint, _laid bigint[],
    _deltas bigint, _total bigint, _proof bigint,
    _want boolean, _lazy boolean, _now bigint,
    _spaces bytea[], _locks bigint[], _room bigint,
    out _took bigint, out _version bigint, out _odd int[], out _versions bigint[], out _afters bigint[], out _terms bigint[], out _fresh boolean[]
) language plpgsql as $$
declare
    _at bigint;
    _from timestamptz;
    _slot int := pg_backend_pid() % 32;
    _done bigint;
    _new bigint;
    _removed bigint;
    _made bigint;
    _here bigint;
    _others bigint;
    _keys bigint;
begin
    if _lazy then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    _at := coalesce(_now, quipu.now_ms());
    if _writer <> 0 then
        perform from quipu.mark m where m.writer = _writer and m.seq = _prev for update;
        if not found then
            return;
        end if;
    end if;

    _from := clock_timestamp();
    -- Each delta has a version of its own: that of its cell, or one of those before
    -- it. A new cell is known by its version: the others have a higher one.
    select r.last_value into _removed from quipu.removal r;
    _new := quipu.draw(_most);
    _version := nextval('quipu.version');
    with put as (
        insert into quipu.cell as c (ns, key, value, version)
        select unnest(_ns), unnest(_key), unnest(_n), _new
        on conflict (ns, key) do update set
            value = c.value + excluded.value,
            version = greatest(_version, c.version + _most)
        where c.term is null or c.term < 0 or c.term > coalesce(_now, quipu.now_ms())
        returning c.value, c.version, c.term
    )
    select array_agg(p.version), array_agg(p.value) filter (where _want), array_agg(p.term) filter (where _want or _laid is not null),
        count(*), count(*) filter (where p.version = _new), count(*) filter (where p.version <> _version)
    into _versions, _afters, _terms, _done, _made, _others from put p;
    _took := extract(epoch from clock_timestamp() - _from) * 1000000;
    if _done <> cardinality(_key) then
        raise exception 'quipu: a cell has expired' using errcode = 'QP001';
    end if;
    if _want then
        perform from unnest(_ns, _key) as u(ns, key) join quipu.pending p on p.ns = u.ns and p.key = u.key
        where (select exists (select from quipu.pending));
        if found then
            raise exception 'quipu: an add is pending, which a value has to count' using errcode = 'QP001';
        end if;
    end if;
    if _laid is not null then
        perform from unnest(_laid, _terms) as u(l, t) where u.l >= 0 and u.l <> greatest(-u.t, 0);
        if found then
            raise exception 'quipu: a cell has another layout' using errcode = 'QP001';
        end if;
    end if;

    if _made > 0 then
        perform from quipu.removal r where r.last_value = _removed;
        if not found then
            raise exception 'quipu: a cell has gone, and may have had a higher version' using errcode = 'QP001';
        end if;
        for i in 1 .. cardinality(_spaces) loop
            select count(*) into _here from unnest(_ns, _versions) as u(ns, v) where u.v = _new and u.ns = _spaces[i];
            continue when _here = 0;
            if _spaces[i] <> '' then
                if not pg_try_advisory_xact_lock_shared({{spaces}}) or not pg_try_advisory_xact_lock_shared(_locks[i]) then
                    raise exception 'quipu: the namespace is being counted' using errcode = 'QP001';
                end if;
                select coalesce(sum(s.n) filter (where s.gen = 0), 0) into _keys from quipu.space s where s.ns = _spaces[i];
                if _keys = 0 or _keys + _here > _room then
                    raise exception 'quipu: the namespace is new or nearly full' using errcode = 'QP001';
                end if;
            end if;
            insert into quipu.space as s values (_spaces[i], 0, _slot, _here)
            on conflict (ns, gen, slot) do update set n = s.n + excluded.n;
        end loop;
        if _want then
            select array_agg(u.v = _new) into _fresh from unnest(_versions) as u(v);
        end if;
    end if;
    if not _want then
        _terms := null;
    end if;
    if _made = _done then
        _version := _new;
        _others := 0;
    end if;
    if _others = 0 then
        _versions := null;
    else
        select array_agg(u.i - 1), array_agg(u.v) into _odd, _versions
        from unnest(_versions) with ordinality as u(v, i) where u.v <> _version;
    end if;

    if _writer <> 0 then
        update quipu.mark m set
            seq = _seq, digest = _digest, at_ms = greatest(m.at_ms, _at),
            deltas = m.deltas + _deltas, total = quipu.wrap(m.total, _total), proof = quipu.wrap(m.proof, _proof),
            results = null, version = _version, odd = _odd, versions = _versions, afters = _afters, terms = _terms, fresh = _fresh
        where m.writer = _writer;
    else
        update quipu.tally t set
            at_ms = greatest(t.at_ms, _at),
            deltas = t.deltas + _deltas, total = quipu.wrap(t.total, _total), proof = quipu.wrap(t.proof, _proof)
        where t.slot = _slot;
    end if;
end $$;

-- quietly is plain for batches that are likely to be unusual. It returns nothing
-- then, so that the server's log is not filled with errors that are none.
create or replace function quipu.quietly(
    _writer bigint, _prev bigint, _seq bigint, _digest bigint,
    _ns bytea[], _key bytea[], _n bigint[], _most bigint, _laid bigint[],
    _deltas bigint, _total bigint, _proof bigint,
    _want boolean, _lazy boolean, _now bigint,
    _spaces bytea[], _locks bigint[], _room bigint,
    out _took bigint, out _version bigint, out _odd int[], out _versions bigint[], out _afters bigint[], out _terms bigint[], out _fresh boolean[]
) language plpgsql as $$
begin
    select p.* into _took, _version, _odd, _versions, _afters, _terms, _fresh from quipu.plain(
        _writer, _prev, _seq, _digest, _ns, _key, _n, _most, _laid, _deltas, _total, _proof,
        _want, _lazy, _now, _spaces, _locks, _room) as p;
exception when sqlstate 'QP001' or numeric_value_out_of_range then
    _version := null;
end $$;

-- tokened is plain for a batch in which some adds have tokens that are new. Of each
-- of these, sorted, it is told the cell (_cell, from 1), the name, what is added,
-- whether a value is wanted, the digest, and how many deltas to the cell come after
-- it (_left) and what they add (_rest). _counts is how many tokens are in each of
-- _spaces, and _tokens how many one may have before its limit must be looked at
-- closely. The tokens are neither too old nor too new after _since, up to _until.
-- The time is not before _seen.
--
-- If a token is known, or anything else is unusual, nothing is changed and nothing
-- is returned: a repeat is no error, and the server's log is not filled with any.
create or replace function quipu.tokened(
    _writer bigint, _prev bigint, _seq bigint, _digest bigint,
    _ns bytea[], _key bytea[], _n bigint[], _most bigint, _laid bigint[],
    _deltas bigint, _total bigint, _proof bigint,
    _want boolean, _lazy boolean, _now bigint,
    _spaces bytea[], _locks bigint[], _room bigint,
    _cell int[], _token_ns bytea[], _token_key bytea[], _token bytea[], _token_n bigint[], _token_want boolean[], _token_digest bigint[],
    _left bigint[], _rest bigint[], _counts bigint[], _tokens bigint, _since bigint, _until bigint, _seen bigint,
    out _took bigint, out _version bigint, out _odd int[], out _versions bigint[], out _afters bigint[], out _terms bigint[], out _fresh boolean[]
) language plpgsql as $$
declare
    _at bigint;
    _gen int;
    _first int;
    _all bigint[];
    _have bigint;
begin
    if not pg_try_advisory_xact_lock_shared({{tokens}}) then
        raise exception 'quipu: a generation is about to begin' using errcode = 'QP001';
    end if;
    select p.* into _took, _version, _odd, _versions, _afters, _terms, _fresh from quipu.plain(
        _writer, _prev, _seq, _digest, _ns, _key, _n, _most, _laid, _deltas, _total, _proof,
        _want, _lazy, _now, _spaces, _locks, _room) as p;
    if _version is null then
        return;
    end if;

    -- The cells are locked: no store decides on their tokens meanwhile.
    _at := greatest(coalesce(_now, quipu.now_ms()), _seen);
    if _at <= _since or _at > _until then
        raise exception 'quipu: a token is too old, or too new' using errcode = 'QP001';
    end if;
    -- Nobody adds to a generation before the last one. In that one the index refuses
    -- a token that is there, also one that another adds without a lock on the cell.
    select min(g.gen), max(g.gen) into _first, _gen from quipu.generation g;
    if _first < _gen then
        perform from unnest(_token_ns, _token_key, _token) as u(ns, key, token)
        join quipu.token t on t.ns = u.ns and t.key = u.key and t.token = u.token
        where t.gen < _gen;
        if found then
            raise exception 'quipu: a token is known' using errcode = 'QP001';
        end if;
    end if;
    if _odd is not null then
        _all := array_fill(_version, array[cardinality(_key)]);
        for i in 1 .. cardinality(_odd) loop
            _all[_odd[i] + 1] := _versions[i];
        end loop;
    end if;
    insert into quipu.token
    select _gen, u.ns, u.key, u.token, 1, u.n, u.want, u.digest, _at,
        case when u.want then _afters[u.cell] - u.rest - u.n else 0 end,
        case when u.want then _afters[u.cell] - u.rest else 0 end,
        coalesce(_all[u.cell], _version) - u.later
    from unnest(_cell, _token_ns, _token_key, _token, _token_n, _token_want, _token_digest, _left, _rest)
        as u(cell, ns, key, token, n, want, digest, later, rest);

    for i in 1 .. cardinality(_spaces) loop
        continue when _counts[i] = 0;
        if _spaces[i] <> '' then
            if not pg_try_advisory_xact_lock_shared({{spaces}}) or not pg_try_advisory_xact_lock_shared(_locks[i]) then
                raise exception 'quipu: the namespace is being counted' using errcode = 'QP001';
            end if;
            select coalesce(sum(s.n), 0) into _have from quipu.space s where s.ns = _spaces[i] and s.gen > 0;
            if _have + _counts[i] > _tokens then
                raise exception 'quipu: the namespace is nearly full' using errcode = 'QP001';
            end if;
        end if;
        -- In a slot that only this function counts in: plain may have locked a tally
        -- already, and others lock those after the counts.
        insert into quipu.space as s values (_spaces[i], _gen, 32 + pg_backend_pid() % 32, _counts[i])
        on conflict (ns, gen, slot) do update set n = s.n + excluded.n;
    end loop;
exception when sqlstate 'QP001' or numeric_value_out_of_range or unique_violation then
    _version := null;
end $$;

-- digest is what the library makes of an add that has a token and nothing else,
-- so that one made here may be repeated there: the operation, the number as a
-- varint, and what stands for no time, nobody and no version.
create or replace function quipu.digest(delta bigint) returns bigint language plpgsql immutable as $$
declare
    _left numeric := case when delta < 0 then -2 * delta::numeric - 1 else 2 * delta::numeric end;
    _bytes bytea := '\x01';
    _sum bytea;
    _digest bigint := 0;
begin
    while _left >= 128 loop
        _bytes := _bytes || set_byte('\x00', 0, (128 + mod(_left, 128))::int);
        _left := div(_left, 128);
    end loop;
    _bytes := _bytes || set_byte('\x00', 0, _left::int) || '\xffdfe6a2e2a01c000000'::bytea;
    _sum := sha256(_bytes);
    for i in reverse 7 .. 0 loop
        _digest := (_digest << 8) | get_byte(_sum, i);
    end loop;
    return _digest;
end $$;

-- add adds to a counter in the caller's own transaction. It locks no cell: the
-- add is a row that is counted from the commit on, and folded into its cell soon
-- after. With a token it counts once, also if the token is used elsewhere.
create or replace function quipu.add(key text, delta bigint, token text default null, namespace text default 'default')
returns void language plpgsql as $$
declare
    _ns bytea := convert_to(namespace, 'UTF8');
    _key bytea := convert_to(key, 'UTF8');
    _token bytea := convert_to(token, 'UTF8');
    _digest bigint := quipu.digest(delta);
    _gen int;
    _known record;
begin
    if key is null or delta is null or namespace is null
        or length(_key) not between 1 and 512 or length(_ns) not between 1 and 64
        or length(_token) not between 1 and 255 or namespace ~ '[/[:cntrl:]]' then
        raise exception 'quipu: a key has 1 to 512 bytes, a namespace 1 to 64 without / and control characters, a token 1 to 255'
            using errcode = 'invalid_parameter_value';
    end if;
    if token is not null then
        perform pg_advisory_xact_lock_shared({{tokens}});
        select max(g.gen) into _gen from quipu.generation g;
        for attempt in 1 .. 2 loop
            select t.op, t.digest into _known from quipu.token t
            where t.ns = _ns and t.key = _key and t.token = _token order by t.at_ms desc limit 1;
            if found then
                if _known.op = 0 then
                    raise exception 'quipu: token % was settled before its write arrived', quote_literal(token)
                        using errcode = 'QP002';
                elsif _known.digest <> _digest then
                    raise exception 'quipu: token % was used for another payload', quote_literal(token)
                        using errcode = 'QP003';
                end if;
                return;
            end if;
            insert into quipu.token values (_gen, _ns, _key, _token, 1, delta, false, _digest, quipu.now_ms(), 0, 0, 0)
            on conflict do nothing;
            exit when found;
        end loop;
    end if;
    insert into quipu.pending (ns, key, delta, token_gen, at_ms, token) values (_ns, _key, delta, _gen, quipu.now_ms(), _token);
end $$;

-- value is what a counter is now, with what is pending: null if it does not exist.
-- Of one that is split it is the sum with its shards. The layout of its own cell is
-- the number of the split, a bit that says whether it is ending, and how many shards
-- there are, in 47, 1 and 15 bits; that of a shard the same, with 1 for its number.
create or replace function quipu.value(key text, namespace text default 'default') returns numeric language sql stable
as $$
    with home as (
        select c.value, greatest(-c.term, 0) as word from quipu.cell c
        where c.ns = convert_to($2, 'UTF8') and c.key = convert_to($1, 'UTF8')
            and (c.term is null or c.term < 0 or c.term > quipu.now_ms())
    )
    select sum(v.n) from (
        select h.value::numeric as n from home h
        union all
        select c.value from home h cross join generate_series(1, (h.word & 32767) - 1) as i
        join quipu.cell c on c.ns = '' and c.key = convert_to('shard/' || i || '/' || $2 || '/' || $1, 'UTF8')
        where (-c.term & ~32768::bigint) = ((h.word >> 16 << 16) | 1)
        union all
        select p.delta from quipu.pending p
        where p.ns = convert_to($2, 'UTF8') and p.key = convert_to($1, 'UTF8')
    ) v
$$;
