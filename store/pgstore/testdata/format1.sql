-- The schema of a store, format 1. The name quipu stands for the schema's name,
-- {{tokens}} for the number of the lock on the generations of tokens, and
-- {{spaces}} for that on the number of namespaces.

-- What there is one of. Writers up to floor that have no mark are retired. The
-- window of tokens is that of the first store that was opened.
create table quipu.meta (
    format int not null,
    id uuid not null default gen_random_uuid(),
    floor bigint not null default 0,
    window_ms bigint
);
insert into quipu.meta (format) values (1);

-- Versions only rise and are never given twice. A version is drawn when its row
-- is locked, so those of one cell rise too; that needs a sequence without cache.
create sequence quipu.version as bigint cache 1;

-- Room is left in every page, and nothing that an add changes is indexed, so
-- that an update stays in its page and touches no index.
create table quipu.cell (
    ns bytea not null,
    key bytea not null,
    value bigint not null,
    version bigint not null,
    deadline_ms bigint,
    primary key (ns, key)
) with (fillfactor = 70);
create index cell_due on quipu.cell (deadline_ms) where deadline_ms is not null;

-- The last batch of each writer. Its results are kept as they are, or, if every
-- delta was a plain add, as what can't be computed from the batch.
create table quipu.mark (
    writer bigint primary key,
    seq bigint not null,
    digest bigint not null,
    at_ms bigint not null,
    deltas bigint not null,
    total bigint not null,
    proof bigint not null,
    results bytea,
    versions bigint[],
    afters bigint[],
    deadlines bigint[],
    fresh boolean[]
) with (fillfactor = 50);
-- They are read once or never: compressing them costs more than it saves.
alter table quipu.mark alter versions set storage external, alter afters set storage external,
    alter deadlines set storage external, alter fresh set storage external;

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
    at_ms bigint not null
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

create function quipu.now_ms() returns bigint language sql volatile
as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

insert into quipu.generation values (1, quipu.now_ms());

-- wrap is the sum of two integers of 64 bits, which wraps around.
create function quipu.wrap(a bigint, b bigint) returns bigint language sql immutable
as $$ select (mod(a::numeric + b + 27670116110564327424, 18446744073709551616) - 9223372036854775808)::bigint $$;

-- plain applies a batch of plain adds to cells, sorted, each once: _n is what is
-- added to a cell, by _k deltas. If the mark is another it returns nothing;
-- whatever else is unusual raises QP001. Either way nothing is changed, and the
-- batch is decided outside. _room is how many keys a namespace may have before its
-- limit must be looked at closely.
create function quipu.plain(
    _writer bigint, _prev bigint, _seq bigint, _digest bigint,
    _ns bytea[], _key bytea[], _n bigint[], _k bigint[],
    _deltas bigint, _total bigint, _proof bigint,
    _want boolean, _lazy boolean, _now bigint,
    _spaces bytea[], _locks bigint[], _room bigint,
    out _versions bigint[], out _afters bigint[], out _deadlines bigint[], out _fresh boolean[]
) language plpgsql as $$
declare
    _at bigint;
    _slot int := pg_backend_pid() % 32;
    _drawn bigint[];
    _made bigint;
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

    -- Each delta has a version of its own: the last of as many as are drawn, and
    -- those before it. A new cell has the negative of their number instead until
    -- all rows are locked: a version drawn before could be lower than one that the
    -- cell had in a life that ended meanwhile.
    with put as (
        insert into quipu.cell as c (ns, key, value, version)
        select u.ns, u.key, u.n, -u.k from unnest(_ns, _key, _n, _k) as u(ns, key, n, k)
        on conflict (ns, key) do update set
            value = c.value + excluded.value,
            version = case excluded.version
                when -1 then nextval('quipu.version')
                else (select max(nextval('quipu.version')) from generate_series(1, -excluded.version))
            end
        where c.deadline_ms is null or c.deadline_ms > coalesce(_now, quipu.now_ms())
        returning c.value, c.version, c.deadline_ms
    )
    select array_agg(p.version), array_agg(p.value), array_agg(p.deadline_ms), count(*) filter (where p.version < 0)
    into _versions, _afters, _deadlines, _made from put p;
    if coalesce(cardinality(_versions), 0) <> cardinality(_key) then
        raise exception 'quipu: a cell has expired' using errcode = 'QP001';
    end if;

    if _made > 0 then
        select array_agg(case
            when u.v > 0 then u.v
            when u.v = -1 then nextval('quipu.version')
            else (select max(nextval('quipu.version')) from generate_series(1, -u.v))
        end) into _drawn from unnest(_versions) as u(v);
        update quipu.cell c set version = u.w
        from unnest(_ns, _key, _versions, _drawn) as u(ns, key, v, w)
        where u.v < 0 and c.ns = u.ns and c.key = u.key;
        for i in 1 .. cardinality(_spaces) loop
            select count(*) into _made from unnest(_ns, _versions) as u(ns, v) where u.v < 0 and u.ns = _spaces[i];
            continue when _made = 0;
            if _spaces[i] <> '' then
                if not pg_try_advisory_xact_lock_shared({{spaces}}) or not pg_try_advisory_xact_lock_shared(_locks[i]) then
                    raise exception 'quipu: the namespace is being counted' using errcode = 'QP001';
                end if;
                select coalesce(sum(s.n) filter (where s.gen = 0), 0) into _keys from quipu.space s where s.ns = _spaces[i];
                if _keys = 0 or _keys + _made > _room then
                    raise exception 'quipu: the namespace is new or nearly full' using errcode = 'QP001';
                end if;
            end if;
            insert into quipu.space as s values (_spaces[i], 0, _slot, _made)
            on conflict (ns, gen, slot) do update set n = s.n + excluded.n;
        end loop;
        select array_agg(u.v < 0) into _fresh from unnest(_versions) as u(v);
        _versions := _drawn;
    end if;
    if not _want then
        _afters := null;
        _deadlines := null;
        _fresh := null;
    end if;

    if _writer <> 0 then
        update quipu.mark m set
            seq = _seq, digest = _digest, at_ms = greatest(m.at_ms, _at),
            deltas = m.deltas + _deltas, total = quipu.wrap(m.total, _total), proof = quipu.wrap(m.proof, _proof),
            results = null, versions = _versions, afters = _afters, deadlines = _deadlines, fresh = _fresh
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
create function quipu.quietly(
    _writer bigint, _prev bigint, _seq bigint, _digest bigint,
    _ns bytea[], _key bytea[], _n bigint[], _k bigint[],
    _deltas bigint, _total bigint, _proof bigint,
    _want boolean, _lazy boolean, _now bigint,
    _spaces bytea[], _locks bigint[], _room bigint,
    out _versions bigint[], out _afters bigint[], out _deadlines bigint[], out _fresh boolean[]
) language plpgsql as $$
begin
    select p.* into _versions, _afters, _deadlines, _fresh from quipu.plain(
        _writer, _prev, _seq, _digest, _ns, _key, _n, _k, _deltas, _total, _proof,
        _want, _lazy, _now, _spaces, _locks, _room) as p;
exception when sqlstate 'QP001' or numeric_value_out_of_range then
    _versions := null;
end $$;

-- digest is what the library makes of an add that has a token and nothing else,
-- so that one made here may be repeated there: the operation, the number as a
-- varint, and what stands for no time, nobody and no version.
create function quipu.digest(delta bigint) returns bigint language plpgsql immutable as $$
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
create function quipu.add(key text, delta bigint, token text default null, namespace text default 'default')
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
    insert into quipu.pending (ns, key, delta, token_gen, at_ms) values (_ns, _key, delta, _gen, quipu.now_ms());
end $$;

-- value is what a counter is now, with what is pending: null if it does not exist.
create function quipu.value(key text, namespace text default 'default') returns numeric language sql stable
as $$
    select sum(v.n) from (
        select c.value::numeric as n from quipu.cell c
        where c.ns = convert_to($2, 'UTF8') and c.key = convert_to($1, 'UTF8')
            and (c.deadline_ms is null or c.deadline_ms > quipu.now_ms())
        union all
        select p.delta from quipu.pending p
        where p.ns = convert_to($2, 'UTF8') and p.key = convert_to($1, 'UTF8')
    ) v
$$;
