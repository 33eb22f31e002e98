-- The functions of a store. The name quipu stands for the schema's name, {{tokens}}
-- for the number of the lock on the generations of tokens, and {{spaces}} for that
-- on the number of namespaces.

create or replace function quipu.now_ms() returns bigint language sql volatile
as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- wrap is the sum of two integers of 64 bits, which wraps around.
create or replace function quipu.wrap(a bigint, b bigint) returns bigint language sql immutable
as $$ select (mod(a::numeric + b + 27670116110564327424, 18446744073709551616) - 9223372036854775808)::bigint $$;

-- signed is an integer of any size modulo 2^64, and times the product of two of 64 bits.
create or replace function quipu.signed(a numeric) returns bigint language sql immutable
as $$ select (mod(mod(a, 18446744073709551616) + 27670116110564327424, 18446744073709551616) - 9223372036854775808)::bigint $$;
create or replace function quipu.times(a bigint, b bigint) returns bigint language sql immutable
as $$ select quipu.signed(a::numeric * b) $$;

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

-- within is quietly for a batch in which some adds have bounds: before it, the value of each cell must
-- be between two numbers. If one is not, somebody has to look at each add.
create or replace function quipu.within(_b quipu.adds, _least bigint[], _most bigint[]) returns quipu.made language plpgsql as $$
declare
    _m quipu.made;
begin
    _b.want := true;
    _m := quipu.plain(_b);
    if _m.version is not null then
        perform quipu.inside(_m.afters, _b.n, _least, _most);
    end if;
    return _m;
exception when sqlstate 'QP001' or numeric_value_out_of_range then
    return null;
end $$;

-- inside raises QP001 if a value that an add has led to was not between two numbers before it.
create or replace function quipu.inside(_afters bigint[], _n bigint[], _least bigint[], _most bigint[]) returns void language plpgsql as $$
begin
    perform from unnest(_afters, _n, _least, _most) as u(v, n, least, most) where u.v - u.n not between u.least and u.most;
    if found then
        raise exception 'quipu: a bound stands in the way of an add' using errcode = 'QP001';
    end if;
end $$;

-- tokened_within is tokened and within.
create or replace function quipu.tokened_within(
    _b quipu.adds,
    _cell int[], _token_ns bytea[], _token_key bytea[], _token bytea[], _token_n bigint[], _token_want boolean[], _token_digest bigint[],
    _left bigint[], _rest bigint[], _counts bigint[], _tokens bigint, _since bigint, _until bigint, _seen bigint,
    _least bigint[], _most bigint[]
) returns quipu.made language plpgsql as $$
declare
    _m quipu.made;
begin
    _b.want := true;
    _m := quipu.tokened(_b, _cell, _token_ns, _token_key, _token, _token_n, _token_want, _token_digest, _left, _rest, _counts, _tokens, _since, _until, _seen);
    if _m.version is not null then
        perform quipu.inside(_m.afters, _b.n, _least, _most);
    end if;
    return _m;
exception when sqlstate 'QP001' then
    return null;
end $$;

-- varint is a number as a varint in zigzag form.
create or replace function quipu.varint(n bigint) returns bytea language plpgsql immutable as $$
declare
    _left numeric := case when n < 0 then -2 * n::numeric - 1 else 2 * n::numeric end;
    _bytes bytea := '';
begin
    while _left >= 128 loop
        _bytes := _bytes || set_byte('\x00', 0, (128 + mod(_left, 128))::int);
        _left := div(_left, 128);
    end loop;
    return _bytes || set_byte('\x00', 0, _left::int);
end $$;

-- payload is what the library makes of an add that has a token and nothing else, but perhaps a
-- floor, so that one made here may be repeated there: the operation, the number as a
-- varint, and what stands for no time, nobody and no version; and the bound, up to the largest number.
create or replace function quipu.payload(delta bigint, floor bigint) returns bigint language plpgsql immutable as $$
declare
    _bytes bytea := '\x01'::bytea || quipu.varint(delta) || '\xffdfe6a2e2a01c000000'::bytea;
    _sum bytea;
    _digest bigint := 0;
begin
    if floor is not null then
        _bytes := _bytes || 'b'::bytea || quipu.varint(floor) || quipu.varint(9223372036854775807) || '\x0001'::bytea;
    end if;
    _sum := sha256(_bytes);
    for i in reverse 7 .. 0 loop
        _digest := (_digest << 8) | get_byte(_sum, i);
    end loop;
    return _digest;
end $$;
create or replace function quipu.digest(delta bigint) returns bigint language sql immutable
as $$ select quipu.payload(delta, null) $$;

-- add adds to a counter in the caller's own transaction. It locks no cell: the
-- add is a row that is counted from the commit on, and folded into its cell soon
-- after. With a token it counts once, also if the token is used elsewhere. A counter that has a floor or a
-- ceiling by definition is refused: see take.
create or replace function quipu.add(key text, delta bigint, token text default null, namespace text default 'default')
returns void language plpgsql as $$
declare
    _ns bytea := convert_to(namespace, 'UTF8');
    _key bytea := convert_to(key, 'UTF8');
    _token bytea := convert_to(token, 'UTF8');
    _digest bigint := quipu.digest(delta);
    _text text := key;
    _said jsonb;
    _gen int;
    _known record;
begin
    if key is null or delta is null or namespace is null
        or length(_key) not between 1 and 512 or length(_ns) not between 1 and 64
        or length(_token) not between 1 and 255 or namespace ~ '[/[:cntrl:]]' then
        raise exception 'quipu: a key has 1 to 512 bytes, a namespace 1 to 64 without / and control characters, a token 1 to 255'
            using errcode = 'invalid_parameter_value';
    end if;
    select d.said into _said from quipu.defined(_ns, _text) d;
    if _said ?| array['choices', 'once'] then
        raise exception 'quipu: by its definition % is changed by users alone, and an add by SQL is of nobody: only a server can write it',
            quote_literal(key) using errcode = 'QP005';
    elsif _said ?| array['floor', 'ceiling'] then
        raise exception 'quipu: the definition of % decides what it may become, and an add is not decided: use take', quote_literal(key)
            using errcode = 'QP005';
    end if;
    perform from quipu.cells c
    where c.ns = _ns and c.key = _key and c.version < 0 and (c.until is null or c.until > quipu.now_ms());
    if found then
        raise exception 'quipu: % holds text, and no count', quote_literal(key) using errcode = 'QP005';
    end if;
    if token is not null then
        perform pg_advisory_xact_lock_shared({{tokens}});
        select max(g.gen) into _gen from quipu.generation g;
        for attempt in 1 .. 2 loop
            select t.op, t.digest, t.outcome into _known from quipu.token t
            where t.ns = _ns and t.key = _key and t.token = _token order by t.at_ms desc limit 1;
            if found then
                if _known.op = 0 then
                    raise exception 'quipu: token % was settled before its write arrived', quote_literal(token)
                        using errcode = 'QP002';
                elsif _known.digest <> _digest then
                    raise exception 'quipu: token % was used for another payload', quote_literal(token)
                        using errcode = 'QP003';
                elsif _known.outcome <> 1 then
                    raise exception 'quipu: token % was used for a write that was refused', quote_literal(token)
                        using errcode = 'QP004';
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
        select h.value::numeric as n from home h where h.word & 16384 = 0 or h.value <> 0
        union all -- seats, which have the users of a counter with choices
        select c.value from home h cross join generate_series(65, case h.word & 16384 when 0 then 0 else 64 + (h.word & 4095) end) as i
        join quipu.cells c on c.ns = '' and c.key = convert_to('shard/' || i || '/' || $2 || '/' || $1, 'UTF8')
        union all
        select c.value from home h cross join generate_series(1, case h.word & 16384 when 0 then (h.word & 32767) - 1 else 0 end) as i
        join quipu.cells c on c.ns = '' and c.key = convert_to('shard/' || i || '/' || $2 || '/' || $1, 'UTF8')
        where (-c.term & ~32768::bigint) = ((h.word >> 16 << 16) | 1)
        union all
        select p.delta from quipu.pending p
        where p.ns = convert_to($2, 'UTF8') and p.key = convert_to($1, 'UTF8')
    ) v
$$;

-- bytes are what a key holds instead of a count: null if it holds a count, or does not exist.
create or replace function quipu.bytes(key text, namespace text default 'default') returns bytea language sql stable
as $$
    select p.bytes from quipu.cells c
    join quipu.part_none p on p.ns = c.ns and p.place = '\x0f'::bytea || c.key || '\xff000000008000000000000000'::bytea
    where c.ns = convert_to($2, 'UTF8') and c.key = convert_to($1, 'UTF8')
        and c.version < 0 and (c.until is null or c.until > quipu.now_ms())
$$;

-- fnv is FNV-1a of 64 bits, half by half.
create or replace function quipu.fnv(_bytes bytea) returns bigint language plpgsql immutable as $$
declare
    _high bigint := 3421674724;
    _low bigint := 2216829733;
begin
    for i in 0 .. length(_bytes) - 1 loop
        _low := (_low # get_byte(_bytes, i)) & 4294967295;
        _high := (_high * 435 + (_low << 8) + (_low * 435 >> 32)) & 4294967295;
        _low := _low * 435 & 4294967295;
    end loop;
    return _high << 32 | _low;
end $$;

-- said is what books say, taken apart: to parse one of a hundred definitions takes milliseconds. It is no
-- more than a copy of their pages: number 0 stands for a book that is here as a whole.
create table if not exists quipu.said (
    ns bytea not null,
    book bigint not null,
    nr bigint not null,
    pattern text,
    definition jsonb,
    primary key (ns, book, nr)
);

-- pages is the book of a namespace as its pages have it; null if there is none.
create or replace function quipu.pages(_ns bytea) returns jsonb language sql stable as $$
    select convert_from(string_agg(p.bytes, ''::bytea order by p.place), 'UTF8')::jsonb
    from quipu.part_none p
    where p.ns = '' and p.place >= '\x0d'::bytea || 'book/'::bytea || _ns || '\xff0000'::bytea
        and p.place < '\x0d'::bytea || 'book/'::bytea || _ns || '\xff0001'::bytea
$$;

-- learn takes the book of a namespace apart, unless another transaction is at it: that would have
-- to be waited for. Callers need no rights on what it keeps, and can't say what that is to be.
create or replace function quipu.learn(_ns bytea, _book bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _text jsonb;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
        or not pg_try_advisory_xact_lock(hashtextextended('quipu said ' || encode(_ns, 'hex'), 0)) then
        return;
    end if;
    _text := quipu.pages(_ns);
    if (_text ->> 'id')::bigint = _book then
        delete from quipu.said s where s.ns = _ns and s.book < _book;
        insert into quipu.said
        select _ns, _book, 0, null, null
        union all
        select _ns, _book, e.nr, e.entry -> 'definition' ->> 'pattern', e.entry -> 'definition'
        from jsonb_array_elements(_text -> 'entries') with ordinality as e(entry, nr)
        on conflict do nothing;
    end if;
end $$;

-- recall is what a book says of a counter, if it was taken apart; known says whether it was.
create or replace function quipu.recall(_ns bytea, _book bigint, _key text, out known boolean, out said jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from quipu.said s where s.ns = _ns and s.book = _book and s.nr = 0), (
        select s.definition from quipu.said s
        where s.ns = _ns and s.book = _book and s.nr > 0
            and (s.pattern = _key or right(s.pattern, 1) = '*' and starts_with(_key, left(s.pattern, -1)))
        order by s.nr limit 1)
$$;

-- defined is the book that the batches of a namespace are judged by, 0 if it has none, and what it says of
-- a counter: null if nothing. The pages of the book are JSON.
create or replace function quipu.defined(_ns bytea, _key text, out book bigint, out said jsonb) language plpgsql as $$
declare
    _known boolean;
    _text jsonb;
begin
    select f.least into book from quipu.fence f where f.ns = _ns and f.kind = 0 and f.view = 0;
    if not found then
        book := 0;
        return;
    end if;
    for attempt in 1 .. 2 loop
        select r.known, r.said into _known, said from quipu.recall(_ns, book, _key) r;
        if _known then
            return;
        elsif attempt = 1 then
            perform quipu.learn(_ns, book);
        end if;
    end loop;
    _text := quipu.pages(_ns);
    if book <> (_text ->> 'id')::bigint then
        raise exception 'quipu: the definitions of the namespace are being changed: try again' using errcode = 'serialization_failure';
    end if;
    select e.entry -> 'definition' into said
    from jsonb_array_elements(_text -> 'entries') with ordinality as e(entry, nr)
    cross join lateral (select e.entry -> 'definition' ->> 'pattern' as pattern) p
    where p.pattern = _key or right(p.pattern, 1) = '*' and starts_with(_key, left(p.pattern, -1))
    order by e.nr limit 1;
end $$;

-- short says that a bound refuses to take from a counter that has a value: by an exception, unless
-- null is wanted.
create or replace function quipu.short(_key text, _n bigint, _value numeric, _low numeric, _high numeric, _null boolean) returns bigint
language plpgsql as $$
begin
    if _null then
        return null;
    end if;
    raise exception 'quipu: taking % from %, which has %, would end % of %', _n, quote_literal(_key), _value,
        case when _n > 0 then 'below the floor' else 'above the ceiling' end, case when _n > 0 then _low else _high end
        using errcode = 'QP004', detail = jsonb_build_object('key', _key, 'value', _value, 'asked', -_n::numeric,
            case when _n > 0 then 'floor' else 'ceiling' end, case when _n > 0 then _low else _high end)::text;
end $$;

-- take takes from a counter in the caller's own transaction, if its floor allows that, and returns what is
-- left: the order and its stock are committed together. The counter is locked until then. A negative
-- amount is given back, up to the ceiling. The floor and the ceiling are those of the definition; the call may bring a
-- higher floor, and if nobody says one, it is 0. A refusal is QP004, or null if that is wanted. With a token it takes
-- once, and a repeat returns the first result; a refusal is not remembered.
--
-- It decides by what it has locked. The definitions are looked at before and after that: whoever counts by later
-- ones meets the counter only after this transaction.
create or replace function quipu.take(
    key text, n bigint, token text default null, namespace text default 'default', floor bigint default null, or_null boolean default false
) returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    _ns bytea := convert_to(namespace, 'UTF8');
    _key bytea := convert_to(key, 'UTF8');
    _token bytea := convert_to(token, 'UTF8');
    _text text := key;
    _digest bigint;
    _at bigint := quipu.now_ms();
    _defined record;
    _book bigint;
    _low numeric;
    _high numeric;
    _gen int;
    _known record;
    _cell record;
    _value numeric;
    _version bigint;
begin
    if key is null or n is null or namespace is null
        or length(_key) not between 1 and 512 or length(_ns) not between 1 and 64
        or length(_token) not between 1 and 255 or namespace ~ '[/[:cntrl:]]' then
        raise exception 'quipu: a key has 1 to 512 bytes, a namespace 1 to 64 without / and control characters, a token 1 to 255'
            using errcode = 'invalid_parameter_value';
    elsif n = 0 or n = -9223372036854775808 then
        raise exception 'quipu: take % of %: want an amount above 0, or below 0 to give back', n, quote_literal(key)
            using errcode = 'invalid_parameter_value';
    elsif current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'quipu: take needs a transaction of isolation level read committed, since it decides by what is so when it has locked the counter; this one is %',
            current_setting('transaction_isolation') using errcode = 'feature_not_supported';
    end if;
    _digest := quipu.payload(-n, floor);

    select d.book, d.said into _defined from quipu.defined(_ns, key) d;
    if _defined.said - array['pattern', 'floor', 'ceiling'] <> '{}' then
        raise exception 'quipu: the definition of % has %: only a server can write it', quote_literal(key),
            (select string_agg(k, ', ' order by k) from jsonb_object_keys(_defined.said - array['pattern', 'floor', 'ceiling']) k)
            using errcode = 'QP005';
    end if;
    _low := coalesce(greatest((_defined.said ->> 'floor')::numeric, floor), 0);
    _high := coalesce((_defined.said ->> 'ceiling')::numeric, 9223372036854775807);

    -- First without a lock, so that a refusal holds nobody up; then with it.
    for attempt in 1 .. 2 loop
        if token is not null then
            if attempt = 1 then
                perform pg_advisory_xact_lock_shared({{tokens}});
                select max(g.gen) into _gen from quipu.generation g;
            end if;
            select t.op, t.digest, t.outcome, t.want, t.before, t.after into _known from quipu.token t
            where t.ns = _ns and t.key = _key and t.token = _token order by t.at_ms desc limit 1;
            if found then
                if _known.op = 0 then
                    raise exception 'quipu: token % was settled before its write arrived', quote_literal(token)
                        using errcode = 'QP002';
                elsif _known.digest <> _digest then
                    raise exception 'quipu: token % was used for another payload', quote_literal(token)
                        using errcode = 'QP003';
                elsif _known.outcome <> 1 then
                    return quipu.short(_text, n, _known.before, _low, _high, or_null);
                elsif _known.want then
                    return _known.after;
                end if;
                return quipu.value(_text, namespace);
            end if;
        end if;
        if attempt = 1 then
            select c.value, c.version, c.term into _cell from quipu.cells c where c.ns = _ns and c.key = _key;
        else
            select c.value, c.version, c.term into _cell from quipu.cells c where c.ns = _ns and c.key = _key for no key update;
        end if;
        if _cell.version < 0 then
            raise exception 'quipu: % holds text, and no count', quote_literal(key) using errcode = 'QP005';
        elsif _cell.term < 0 then
            raise exception 'quipu: % is split over several cells: a server has to put it together first', quote_literal(key)
                using errcode = 'QP005';
        end if;
        select coalesce(f.least, 0), case when _cell.term <= _at then 0 else coalesce(_cell.value, 0) end + coalesce(p.n, 0)
        into _book, _value
        from (select sum(p.delta) as n from quipu.pending p where p.ns = _ns and p.key = _key) p
        left join quipu.fence f on f.ns = _ns and f.kind = 0 and f.view = 0;
        if n > 0 and _value - n < _low or n < 0 and _value - n > _high then
            return quipu.short(_text, n, _value, _low, _high, or_null);
        elsif _cell.value is null or _cell.term <= _at then
            raise exception 'quipu: % does not exist: a server has to set it first', quote_literal(key) using errcode = 'QP005';
        end if;
    end loop;
    if _book <> _defined.book then
        raise exception 'quipu: the definitions of the namespace have changed: try again' using errcode = 'serialization_failure';
    end if;
    perform from quipu.part_none p
    where p.ns = _ns and p.value <> 0 and (p.place >= '\x06'::bytea || _key || '\xff'::bytea and p.place < '\x06'::bytea || _key || '\xffffff'::bytea
        or p.place >= '\x08'::bytea || _key || '\xff'::bytea and p.place < '\x08'::bytea || _key || '\xffffff'::bytea);
    if found then
        raise exception 'quipu: % has members or reservations: only a server can write it', quote_literal(key) using errcode = 'QP005';
    end if;

    _version := greatest(nextval('quipu.version'), _cell.version + 1);
    update quipu.cells c set value = c.value - n, version = _version where c.ns = _ns and c.key = _key;
    -- Rows of its own, which a store adds to the others: those are locked only for a moment, this
    -- transaction may last.
    insert into quipu.tally (slot, at_ms, deltas, total, proof)
    values (64 + _version % 2000000000, _at, 1, -n, quipu.times(-n, quipu.fnv(_ns || '\x00'::bytea || _key) | 1));
    if token is not null then
        insert into quipu.token
        values (_gen, _ns, _key, _token, 1, -n, true, _digest, _at, _value, _value - n, _version) on conflict do nothing;
        if not found then
            raise exception 'quipu: token % is being used elsewhere: try again', quote_literal(token) using errcode = 'serialization_failure';
        end if;
        insert into quipu.space values (_ns, _gen, 64 + _version % 2000000000, 1);
    end if;
    return _value - n;
end $$;
revoke execute on function quipu.take(text, bigint, text, text, bigint, boolean) from public;

-- gather adds what take has counted in rows of its own to the rows that all share, and returns how many
-- rows it has taken away.
create index if not exists space_own on quipu.space (slot) where slot >= 64;
create or replace function quipu.gather() returns bigint language plpgsql as $$
declare
    _rows bigint;
    _more bigint;
begin
    with gone as (
        delete from quipu.tally t where t.slot in (
            select o.slot from quipu.tally o where o.slot >= 64 order by o.slot limit 10000 for update skip locked)
        returning t.at_ms, t.deltas, t.total, t.proof
    ), s as (
        select count(*) as n, max(g.at_ms) as at_ms, sum(g.deltas) as deltas, sum(g.total) as total, sum(g.proof) as proof from gone g
    ), put as (
        update quipu.tally t set at_ms = greatest(t.at_ms, s.at_ms), deltas = t.deltas + s.deltas,
            total = quipu.signed(t.total + s.total), proof = quipu.signed(t.proof + s.proof)
        from s where s.n > 0 and t.slot = pg_backend_pid() % 32
    )
    select s.n into _rows from s;
    with gone as (
        delete from quipu.space t where (t.ns, t.gen, t.slot) in (
            select o.ns, o.gen, o.slot from quipu.space o where o.slot >= 64 order by o.slot limit 10000 for update skip locked)
        returning t.ns, t.gen, t.n
    ), put as (
        insert into quipu.space as t
        select g.ns, g.gen, pg_backend_pid() % 32, sum(g.n) from gone g group by g.ns, g.gen order by g.ns, g.gen
        on conflict (ns, gen, slot) do update set n = t.n + excluded.n
    )
    select count(*) into _more from gone;
    return _rows + _more;
end $$;
