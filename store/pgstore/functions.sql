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

-- plain applies a batch of plain adds, with what they add to parts. If the mark is
-- another it returns no version; whatever else is unusual raises QP001. Either way
-- nothing is changed, and the batch is decided outside. took is how long it took
-- to lock and change the cells, in microseconds.
create or replace function quipu.plain(_b quipu.adds) returns quipu.made language plpgsql as $$
declare
    _m quipu.made;
    _at bigint;
    _from timestamptz;
    _slot int := pg_backend_pid() % 32;
    _done bigint;
    _new bigint;
    _removed bigint;
    _fenced boolean;
    _made bigint;
    _here bigint;
    _others bigint;
    _keys bigint;
    _terms bigint[];
begin
    if _b.lazy then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    _at := coalesce(_b.now, quipu.now_ms());
    -- Before anything else is locked. Rows are found only if something is unusual, but the
    -- table is held. One by one, since a join would be planned anew each time. A book
    -- that has no fence yet is to be one.
    for i in 1 .. cardinality(_b.fence_ns) loop
        perform from quipu.fence f
        where f.ns = _b.fence_ns[i] and f.kind = _b.fence_kind[i] and f.view = _b.fence_view[i]
            and (f.least > _b.fence_at[i] or f.kind = 0 and f.least <> _b.fence_at[i]) for key share;
        _fenced := found;
        if _b.booked and not _fenced and _b.fence_kind[i] = 0 and _b.fence_at[i] > 0 then
            perform from quipu.fence f where f.ns = _b.fence_ns[i] and f.kind = 0 and f.view = 0;
            _fenced := not found;
        end if;
        if _fenced then
            raise exception 'quipu: the batch has to be judged by a fence' using errcode = 'QP001';
        end if;
    end loop;
    select r.last_value into _removed from quipu.removal r;
    if _b.writer <> 0 then
        perform from quipu.mark m where m.writer = _b.writer and m.seq = _b.prev for update;
        if not found then
            return null;
        end if;
    end if;

    _from := clock_timestamp();
    -- Each delta has a version of its own: that of its cell, or one of those before
    -- it. A new cell is known by its version: the others have a higher one.
    _new := quipu.draw(_b.most);
    _m.version := nextval('quipu.version');
    with put as (
        insert into quipu.cells as c (ns, key, value, version)
        select unnest(_b.ns), unnest(_b.key), unnest(_b.n), _new
        on conflict (ns, key) do update set
            value = c.value + excluded.value,
            version = greatest(_m.version, c.version + _b.most)
        where c.term is null or c.term < 0 or _b.part_place is null and c.term > coalesce(_b.now, quipu.now_ms())
        returning c.value, c.version, c.term
    )
    select array_agg(p.version), array_agg(p.value) filter (where _b.want), array_agg(p.term) filter (where _b.want or _b.laid is not null),
        count(*), count(*) filter (where p.version = _new), count(*) filter (where p.version <> _m.version)
    into _m.versions, _m.afters, _terms, _done, _made, _others from put p;
    _m.took := extract(epoch from clock_timestamp() - _from) * 1000000;
    if _done <> cardinality(_b.key) then
        raise exception 'quipu: a cell has expired, or has parts and a deadline' using errcode = 'QP001';
    end if;
    if _b.want then
        perform from unnest(_b.ns, _b.key) as u(ns, key) join quipu.pending p on p.ns = u.ns and p.key = u.key
        where (select exists (select from quipu.pending));
        if found then
            raise exception 'quipu: an add is pending, which a value has to count' using errcode = 'QP001';
        end if;
        _m.terms := _terms;
    end if;
    if _b.laid is not null then
        perform from unnest(_b.laid, _terms) as u(l, t) where u.l >= 0 and u.l <> greatest(-u.t, 0);
        if found then
            raise exception 'quipu: a cell has another layout' using errcode = 'QP001';
        end if;
    end if;

    if _made > 0 then
        perform from quipu.removal r where r.last_value = _removed;
        if not found then
            raise exception 'quipu: a cell has gone, and may have had a higher version' using errcode = 'QP001';
        end if;
        for i in 1 .. cardinality(_b.spaces) loop
            select count(*) into _here from unnest(_b.ns, _m.versions) as u(ns, v) where u.v = _new and u.ns = _b.spaces[i];
            continue when _here = 0;
            if _b.spaces[i] <> '' then
                if not pg_try_advisory_xact_lock_shared({{spaces}}) or not pg_try_advisory_xact_lock_shared(_b.locks[i]) then
                    raise exception 'quipu: the namespace is being counted' using errcode = 'QP001';
                end if;
                select coalesce(sum(s.n) filter (where s.gen = 0), 0) into _keys from quipu.space s where s.ns = _b.spaces[i];
                if _keys = 0 or _keys + _here > _b.room then
                    raise exception 'quipu: the namespace is new or nearly full' using errcode = 'QP001';
                end if;
            end if;
            insert into quipu.space as s values (_b.spaces[i], 0, _slot, _here)
            on conflict (ns, gen, slot) do update set n = s.n + excluded.n;
        end loop;
        if _b.want then
            select array_agg(u.v = _new) into _m.fresh from unnest(_m.versions) as u(v);
        end if;
    end if;
    if _b.part_place is not null then
        perform quipu.ride(_b);
    end if;
    if _made = _done then
        _m.version := _new;
        _others := 0;
    end if;
    if _others = 0 then
        _m.versions := null;
    else
        select array_agg(u.i - 1), array_agg(u.v) into _m.odd, _m.versions
        from unnest(_m.versions) with ordinality as u(v, i) where u.v <> _m.version;
    end if;

    if _b.writer <> 0 then
        update quipu.mark m set
            seq = _b.seq, digest = _b.digest, at_ms = greatest(m.at_ms, _at),
            deltas = m.deltas + _b.deltas, total = quipu.wrap(m.total, _b.total), proof = quipu.wrap(m.proof, _b.proof),
            results = null, version = _m.version, odd = _m.odd, versions = _m.versions, afters = _m.afters, terms = _m.terms, fresh = _m.fresh
        where m.writer = _b.writer;
    else
        update quipu.tally t set
            at_ms = greatest(t.at_ms, _at),
            deltas = t.deltas + _b.deltas, total = quipu.wrap(t.total, _b.total), proof = quipu.wrap(t.proof, _b.proof)
        where t.slot = _slot;
    end if;
    return _m;
end $$;

-- ride adds to the parts of cells that are locked. Its plans are made once: the server
-- would make them anew each time, to know how many parts there are.
create or replace function quipu.ride(_b quipu.adds) returns void language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    _under bigint;
begin
    if _b.book_place is not null then
        select count(*) into _under from unnest(_b.book_ns, _b.book_place, _b.book_at) as u(ns, place, at)
        cross join lateral (
            select from quipu.part_none p where p.ns = u.ns and p.place = u.place and p.value >= u.at offset 0) as p;
        if _under <> cardinality(_b.book_place) then
            raise exception 'quipu: a counter was not written under this book yet' using errcode = 'QP001';
        end if;
    end if;
    insert into quipu.part as p (epoch, ns, place, value)
    select unnest(_b.part_epoch), unnest(_b.part_ns), unnest(_b.part_place), unnest(_b.part_n)
    on conflict (ns, place, epoch) do update set value = p.value + excluded.value;
    if cardinality(_b.tally_ns) > 0 then
        insert into quipu.part_tally as t
        select u.ns, u.kind, u.view, u.epoch, pg_backend_pid() % 32, u.total, u.proof
        from unnest(_b.tally_ns, _b.tally_kind, _b.tally_view, _b.tally_epoch, _b.tally_total, _b.tally_proof)
            as u(ns, kind, view, epoch, total, proof)
        on conflict (ns, kind, view, epoch, slot) do update set
            total = quipu.wrap(t.total, excluded.total), proof = quipu.wrap(t.proof, excluded.proof);
    end if;
end $$;

-- quietly is plain for batches that are likely to be unusual. It returns nothing
-- then, so that the server's log is not filled with errors that are none.
create or replace function quipu.quietly(_b quipu.adds) returns quipu.made language plpgsql as $$
begin
    return quipu.plain(_b);
exception when sqlstate 'QP001' or numeric_value_out_of_range then
    return null;
end $$;

-- tokened is plain for a batch in which some adds have tokens that are new. Of each
-- of these, sorted, it is told the cell (_cell, from 1), the name, what is added,
-- whether a value is wanted, the digest, and how many deltas to the cell come after
-- it (_left) and what they add (_rest). _counts is how many tokens are in each of
-- the namespaces, and _tokens how many one may have before its limit must be looked at
-- closely. The tokens are neither too old nor too new after _since, up to _until.
-- The time is not before _seen.
--
-- If a token is known, or anything else is unusual, nothing is changed and nothing
-- is returned: a repeat is no error, and the server's log is not filled with any.
create or replace function quipu.tokened(
    _b quipu.adds,
    _cell int[], _token_ns bytea[], _token_key bytea[], _token bytea[], _token_n bigint[], _token_want boolean[], _token_digest bigint[],
    _left bigint[], _rest bigint[], _counts bigint[], _tokens bigint, _since bigint, _until bigint, _seen bigint
) returns quipu.made language plpgsql as $$
declare
    _m quipu.made;
    _at bigint;
    _gen int;
    _first int;
    _all bigint[];
    _have bigint;
begin
    if not pg_try_advisory_xact_lock_shared({{tokens}}) then
        raise exception 'quipu: a generation is about to begin' using errcode = 'QP001';
    end if;
    _m := quipu.plain(_b);
    if _m.version is null then
        return null;
    end if;

    -- The cells are locked: no store decides on their tokens meanwhile.
    _at := greatest(coalesce(_b.now, quipu.now_ms()), _seen);
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
    if _m.odd is not null then
        _all := array_fill(_m.version, array[cardinality(_b.key)]);
        for i in 1 .. cardinality(_m.odd) loop
            _all[_m.odd[i] + 1] := _m.versions[i];
        end loop;
    end if;
    insert into quipu.token
    select _gen, u.ns, u.key, u.token, 1, u.n, u.want, u.digest, _at,
        case when u.want then _m.afters[u.cell] - u.rest - u.n else 0 end,
        case when u.want then _m.afters[u.cell] - u.rest else 0 end,
        coalesce(_all[u.cell], _m.version) - u.later
    from unnest(_cell, _token_ns, _token_key, _token, _token_n, _token_want, _token_digest, _left, _rest)
        as u(cell, ns, key, token, n, want, digest, later, rest);

    for i in 1 .. cardinality(_b.spaces) loop
        continue when _counts[i] = 0;
        if _b.spaces[i] <> '' then
            if not pg_try_advisory_xact_lock_shared({{spaces}}) or not pg_try_advisory_xact_lock_shared(_b.locks[i]) then
                raise exception 'quipu: the namespace is being counted' using errcode = 'QP001';
            end if;
            select coalesce(sum(s.n), 0) into _have from quipu.space s where s.ns = _b.spaces[i] and s.gen > 0;
            if _have + _counts[i] > _tokens then
                raise exception 'quipu: the namespace is nearly full' using errcode = 'QP001';
            end if;
        end if;
        -- In a slot that only this function counts in: plain may have locked a tally
        -- already, and others lock those after the counts.
        insert into quipu.space as s values (_b.spaces[i], _gen, 32 + pg_backend_pid() % 32, _counts[i])
        on conflict (ns, gen, slot) do update set n = s.n + excluded.n;
    end loop;
    return _m;
exception when sqlstate 'QP001' or numeric_value_out_of_range or unique_violation then
    return null;
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
        select c.value, greatest(-c.term, 0) as word from quipu.cells c
        where c.ns = convert_to($2, 'UTF8') and c.key = convert_to($1, 'UTF8')
            and (c.term is null or c.term < 0 or c.term > quipu.now_ms())
    )
    select sum(v.n) from (
        select h.value::numeric as n from home h
        union all
        select c.value from home h cross join generate_series(1, (h.word & 32767) - 1) as i
        join quipu.cells c on c.ns = '' and c.key = convert_to('shard/' || i || '/' || $2 || '/' || $1, 'UTF8')
        where (-c.term & ~32768::bigint) = ((h.word >> 16 << 16) | 1)
        union all
        select p.delta from quipu.pending p
        where p.ns = convert_to($2, 'UTF8') and p.key = convert_to($1, 'UTF8')
    ) v
$$;
