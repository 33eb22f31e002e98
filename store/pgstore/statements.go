package pgstore

import (
	"fmt"
	"strings"
)

// statements are the SQL of a store, with the name of its schema.
type statements struct {
	look, window, setWindow                    string
	plain, quietly, tokened                    [2]string // without parts, with parts
	within, tokenedWithin                      [2]string // the same, with bounds
	one                                        [2]string // under no book, under one
	nonePending                                string
	lockMarks, lockCells                       string
	loadCells, loadTokens, loadPending         string
	loadMarks, loadSpaces, countSpaces         string
	draw, raise, due                           string
	putCells, dropCells, putTokens, dropTokens string
	putMark, dropMarks, raiseFloor             string
	count, tally, dropPending, refuse          string
	read, scan, size, lookup, namespaces       string
	replayed                                   string
	dueCells, dueTokens, pendingCells, gather  string
	generations, addGeneration, dropGeneration string
	auditCells, auditMarks, auditSpaces        string
	auditTokens, auditPending, auditVersion    string
	holdFences, lockFences                     string
	loadFences, putFence                       string
	loadParts, putParts, dropParts             string
	tallyParts, readParts, epochs, addEpoch    string
	scanEpoch, scanParts                       [2]string // either way
	liveEpochs, lockParts, dropEpoch           string
	auditParts, auditEpochs                    string
}

func newStatements(schema string) statements {
	in := func(sql string) string { return inSchema(schema, sql) }
	// A batch of plain adds, which may add to parts too, and what else a function is told.
	apply := func(function string, parts bool, more int) string {
		types := "bigint bigint bigint bigint bigint bigint bigint boolean boolean bigint " +
			"bytea[] bytea[] bigint[] bigint bigint[] bytea[] bigint[] bigint bytea[] smallint[] int[] bigint[] boolean"
		const ofParts = " bigint[] bytea[] bytea[] bigint[] bytea[] bytea[] bigint[] bytea[] smallint[] int[] bigint[] bigint[] bigint[]"
		if parts {
			types += ofParts
		}
		args, n := "row(", 0
		for t := range strings.FieldsSeq(types) {
			n++
			args += fmt.Sprintf("$%d::%s, ", n, t)
		}
		if !parts {
			args += strings.Repeat("null, ", len(strings.Fields(ofParts)))
		}
		args = strings.TrimSuffix(args, ", ") + ")::quipu.adds"
		for range more {
			n++
			args += fmt.Sprintf(", $%d", n)
		}
		return in(`select coalesce(took, 0), version, odd, versions, afters, terms, fresh from quipu.` + function + `(` + args + `)`)
	}
	either := func(function string, more int) [2]string {
		return [2]string{apply(function, false, more), apply(function, true, more)}
	}
	// As quipu.plain, of one cell that is there. If the mark is another, or anything else is
	// unusual, no row is changed and none returned. The fences are held first, then
	// the mark.
	one := func(booked string) string {
		return in(`
			with fenced as materialized (
				select from quipu.fence f where f.ns = $15 and f.kind = 0 and f.view = 0 and f.least <> $16 for key share),
			due as materialized (
				select from quipu.mark m where m.writer = $1 and m.seq = $2 for update),
			put as (
				update quipu.cells c set value = c.value + $7, version = greatest(quipu.draw($8), c.version + $8)
				where c.ns = $5 and c.key = $6 and not exists (select from fenced) and exists (select from due)
					` + booked + `
					and (c.term is null or c.term < 0 or c.term > coalesce($14, quipu.now_ms()))
					and ($9::bigint < 0 or greatest(-c.term, 0) = $9) and c.value between $17 and $18
					and not ($13 and exists (select from quipu.pending p where p.ns = $5 and p.key = $6))
				returning c.value, c.version, c.term, clock_timestamp() as at),
			noted as (
				update quipu.mark m set
					seq = $3, digest = $4, at_ms = greatest(m.at_ms, coalesce($14, quipu.now_ms())),
					deltas = m.deltas + $10, total = quipu.wrap(m.total, $11), proof = quipu.wrap(m.proof, $12),
					results = null, version = p.version, odd = null, versions = null, fresh = null,
					afters = case when $13 then array[p.value] end, terms = case when $13 then array[p.term] end
				from put p where m.writer = $1)
			select (extract(epoch from p.at - statement_timestamp()) * 1000000)::bigint, p.version, p.value, p.term from put p`)
	}
	scan := func(epoch, order string) string {
		return in(`
			select p.place, p.value, p.bytes from quipu.part p
			where ` + epoch + ` and p.ns = $1 and p.place >= $2 and ($3::bytea is null or p.place < $3) and ` + kept + `
			order by p.place` + order + ` limit $4`)
	}
	return statements{
		look: in(`
			select current_setting('fsync')::bool, current_setting('synchronous_commit') <> 'off',
				current_setting('max_connections')::bigint,
				greatest((select max(at_ms) from quipu.tally), (select max(at_ms) from quipu.mark), 0)`),
		window:        in(`select window_ms from quipu.meta`),
		setWindow:     in(`update quipu.meta set window_ms = $1 where window_ms is null`),
		plain:         either("plain", 0),
		quietly:       either("quietly", 0),
		tokened:       either("tokened", 14),
		within:        either("within", 2),
		tokenedWithin: either("tokened_within", 16),
		one:           [2]string{one(""), one(`and exists (select from quipu.fence f where f.ns = $15 and f.kind = 0 and f.view = 0)`)},
		// Fails as codePending if an add to the cell is pending: what was done before, in
		// the same transaction, must not stay.
		nonePending: in(`
			select (select 'quipu: an add is pending, which a value has to count'
				from quipu.pending p where p.ns = $1 and p.key = $2 limit 1)::int`),

		// Marks of the writers named, and of all that are retired.
		lockMarks: in(`
			select writer, seq, digest, deltas, total, proof, results, version, odd, versions, afters, terms, fresh from quipu.mark
			where writer = any($1::bigint[]) or writer <= $2 order by writer for update`),
		// The rows of cells that do not exist have version 0 until they do. What
		// exists is locked, although no row is changed.
		lockCells: in(`
			insert into quipu.cells as c (ns, key, value, version)
			select u.ns, u.key, 0, 0 from unnest($1::bytea[], $2::bytea[]) as u(ns, key)
			on conflict (ns, key) do update set value = c.value where false`),
		// Named rows are found one by one by their index, which the offset insists on: a plan
		// made while a table was new would read all of it when it has grown.
		loadCells: in(`
			select u.i - 1, c.value, c.version, coalesce(c.term, 0), coalesce(c.until, 0)
			from unnest($1::bytea[], $2::bytea[]) with ordinality as u(ns, key, i)
			cross join lateral (select * from quipu.cells c where c.ns = u.ns and c.key = u.key offset 0) as c`),
		loadTokens: in(`
			select u.i - 1, t.gen, t.op, t.n, t.want, t.digest, t.at_ms, t.before, t.after, t.version, t.outcome, t.refused
			from unnest($1::bytea[], $2::bytea[], $3::bytea[]) with ordinality as u(ns, key, token, i)
			cross join lateral (
				select * from quipu.token t where t.ns = u.ns and t.key = u.key and t.token = u.token offset 0) as t`),
		loadPending: in(`
			select p.id, u.i - 1, p.delta, coalesce(p.token_gen, 0), coalesce(p.token, '')
			from unnest($1::bytea[], $2::bytea[]) with ordinality as u(ns, key, i)
			join quipu.pending p on p.ns = u.ns and p.key = u.key
			where (select exists (select from quipu.pending)) order by p.id limit $3`),
		// Drawn after all rows are locked: one for each change, and one for each
		// add that is folded.
		draw: in(`
			select nextval('quipu.version') from generate_series(1, $3 + (
				select count(*) from (
					select from unnest($1::bytea[], $2::bytea[]) as u(ns, key)
					join quipu.pending p on p.ns = u.ns and p.key = u.key
					where (select exists (select from quipu.pending)) limit $4) as p))`),
		// Versions drawn from now on are above those of cells that go, and servers that
		// have drawn before are told.
		raise: in(`
			select count(nextval('quipu.version')), nextval('quipu.removal')
			from generate_series((select last_value from quipu.version) + 1, $1)`),
		loadMarks: in(`
			select floor(extract(epoch from clock_timestamp()) * 1000000)::bigint, m.floor, case when $1 then (select count(*) from quipu.mark) else 0 end,
				(select max(gen) from quipu.generation)
			from quipu.meta m`),
		loadSpaces: in(`
			select s.ns, coalesce(sum(s.n) filter (where s.gen = 0), 0)::bigint, coalesce(sum(s.n) filter (where s.gen > 0), 0)::bigint,
				coalesce(sum(s.n) filter (where s.gen < 0), 0)::bigint
			from quipu.space s where s.ns = any($1::bytea[]) group by s.ns`),
		countSpaces: in(`
			select count(*) from (
				select from quipu.space s where $1 and s.ns <> '' and s.gen >= 0 group by s.ns having sum(s.n) > 0) as s`),
		due: in(`
			select exists (select from quipu.cells c where c.term > 0 and c.term <= $1)
				or exists (select from quipu.cells c where c.until > 0 and c.until <= $1)
				or exists (select from quipu.token t where t.at_ms <= $2)`),

		putCells: in(`
			update quipu.cells c set value = u.value, version = u.version,
				term = case when u.version < 0 then 0 else nullif(u.term, 0) end, until = nullif(u.until, 0)
			from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
				as u(ns, key, value, version, term, until)
			where c.ns = u.ns and c.key = u.key`),
		dropCells: in(`
			delete from quipu.cells c using unnest($1::bytea[], $2::bytea[]) as u(ns, key)
			where c.ns = u.ns and c.key = u.key`),
		dropTokens: in(`
			delete from quipu.token t using unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[]) as u(gen, ns, key, token)
			where t.gen = u.gen and t.ns = u.ns and t.key = u.key and t.token = u.token`),
		putTokens: in(`
			insert into quipu.token
			select $1::int, u.* from unnest(
				$2::bytea[], $3::bytea[], $4::bytea[], $5::smallint[], $6::bigint[], $7::boolean[],
				$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::smallint[], $14::smallint[]) as u`),
		putMark: in(`
			insert into quipu.mark as m values ($1, $2, $3, $4, $5, $6, $7, $8)
			on conflict (writer) do update set
				seq = excluded.seq, digest = excluded.digest, at_ms = greatest(m.at_ms, excluded.at_ms),
				deltas = excluded.deltas, total = excluded.total, proof = excluded.proof,
				results = excluded.results, version = null, odd = null, versions = null, afters = null, terms = null, fresh = null`),
		dropMarks:  in(`delete from quipu.mark where writer <= $1`),
		raiseFloor: in(`update quipu.meta set floor = greatest(floor, $1)`),
		count: in(`
			insert into quipu.space as s
			select u.ns, u.gen, pg_backend_pid() % 32, u.n from unnest($1::bytea[], $2::int[], $3::bigint[]) as u(ns, gen, n)
			on conflict (ns, gen, slot) do update set n = s.n + excluded.n`),
		tally: in(`
			update quipu.tally t set at_ms = greatest(t.at_ms, $1), deltas = t.deltas + $2,
				total = quipu.wrap(t.total, $3), proof = quipu.wrap(t.proof, $4)
			where t.slot = pg_backend_pid() % 32`),
		dropPending: in(`delete from quipu.pending where id = any($1::bigint[])`),
		refuse: in(`
			insert into quipu.pending_refused
			select p.id, p.ns, p.key, p.delta, u.outcome, p.at_ms
			from unnest($1::bigint[], $2::smallint[]) as u(id, outcome) join quipu.pending p on p.id = u.id`),

		// Pending changes are looked for only if there are any.
		read: in(`
			select u.i - 1, coalesce(c.value, 0), coalesce(c.version, 0), coalesce(c.term, 0), coalesce(c.until, 0), quipu.now_ms(),
				case when (select exists (select from quipu.pending))
					then (select min(p.at_ms) from quipu.pending p where p.ns = u.ns and p.key = u.key) end
			from unnest($1::bytea[], $2::bytea[]) with ordinality as u(ns, key, i)
			left join lateral (select * from quipu.cells c where c.ns = u.ns and c.key = u.key offset 0) as c on true`),
		scan: in(`
			with c as (
				select c.key, c.value, c.version, c.term, c.until from quipu.cells c
				where c.ns = $1 and c.key > $2 and c.key >= $3 and ($4::bytea is null or c.key < $4)
				order by c.key limit $5),
			p as (
				select p.key, min(p.at_ms) as at_ms from quipu.pending p
				where (select exists (select from quipu.pending))
					and p.ns = $1 and p.key > $2 and p.key >= $3 and ($4::bytea is null or p.key < $4)
				group by p.key order by p.key limit $5)
			select key, coalesce(c.value, 0), coalesce(c.version, 0), coalesce(c.term, 0), coalesce(c.until, 0), quipu.now_ms(), p.at_ms
			from c full join p using (key) order by key limit $5`),
		// Null on a primary. On a standby, the time of the last commit that it has
		// replayed; if it has replayed none since it was started, that of the last write
		// in the schema. Whatever was acknowledged before that was committed before it.
		replayed: in(`
			select case when pg_is_in_recovery() then greatest(1, coalesce(
				floor(extract(epoch from pg_last_xact_replay_timestamp()) * 1000)::bigint,
				(select max(at_ms) from quipu.tally), (select max(at_ms) from quipu.mark))) end`),
		size: in(`select coalesce(sum(n), 0)::bigint from quipu.space where ns = $1 and gen = 0`),
		// A step from the first cell of a namespace to that of the next, so that it
		// does not matter how many cells there are.
		namespaces: in(`
			with recursive s(ns) as (
				(select c.ns from quipu.cells c where c.ns > $1 order by c.ns limit 1)
				union all
				select (select c.ns from quipu.cells c where c.ns > s.ns order by c.ns limit 1) from s where s.ns is not null)
			(select s.ns from s where s.ns is not null limit $2)
			union (select distinct p.ns from quipu.pending p where p.ns > $1 order by p.ns limit $2)
			order by ns limit $2`),
		gather: in(`select quipu.gather()`),
		lookup: in(`
			select quipu.now_ms(), t.op, t.n, t.want, t.digest, t.at_ms, t.before, t.after, t.version, t.outcome, t.refused
			from (values (1)) as one left join quipu.token t on t.ns = $1 and t.key = $2 and t.token = $3
			order by t.at_ms desc nulls last limit 1`),

		dueCells: in(`
			(select c.ns, c.key from quipu.cells c where c.term > 0 and c.term <= coalesce($1, quipu.now_ms())
				order by c.term limit $2)
			union all
			(select c.ns, c.key from quipu.cells c where c.until > 0 and c.until <= coalesce($1, quipu.now_ms())
				order by c.until limit $2)
			limit $2`),
		dueTokens: in(`
			with due as (
				select t.gen, t.ns, t.key, t.token from quipu.token t
				where t.at_ms <= $1 order by t.at_ms limit $2 for update skip locked),
			gone as (
				delete from quipu.token t using due d
				where t.gen = d.gen and t.ns = d.ns and t.key = d.key and t.token = d.token returning t.gen, t.ns, t.outcome)
			select ns, gen, count(*), count(*) filter (where outcome <> 1) from gone group by ns, gen order by ns, gen`),
		pendingCells: in(`select distinct p.ns, p.key from quipu.pending p limit $1`),
		generations:  in(`select gen, from_ms, quipu.now_ms() from quipu.generation order by gen`),
		addGeneration: in(`
			create table quipu.token_%[1]d (like quipu.token including all);
			alter table quipu.token attach partition quipu.token_%[1]d for values in (%[1]d);
			insert into quipu.generation values (%[1]d, %[2]d)`),
		dropGeneration: in(`
			drop table quipu.token_%[1]d;
			delete from quipu.space where abs(gen) = %[1]d;
			delete from quipu.generation where gen = %[1]d`),

		auditCells: in(`select ns, key, value, abs(version) from quipu.cells`),
		auditMarks: in(`
			select deltas, total, proof from quipu.mark union all select deltas, total, proof from quipu.tally`),
		auditSpaces: in(`
			select ns, sign(gen)::int, sum(n)::bigint from quipu.space group by ns, sign(gen)
			having sum(n) <> 0`),
		auditVersion: in(`select case when is_called then last_value else 0 end from quipu.version`),
		auditTokens:  in(`select ns, count(*), count(*) filter (where outcome <> 1) from quipu.token group by ns`),
		auditPending: in(`select ns, count(*) from quipu.pending where token_gen is not null group by ns`),

		// A transaction that judges a batch by the fences shares them, and one that raises a
		// fence holds them alone. It waits for those that are under way, and others wait behind it: not long.
		holdFences: in(`lock table quipu.fence in row share mode`),
		lockFences: in(`lock table quipu.fence in exclusive mode`),
		loadFences: in(`select ns, kind, view, least from quipu.fence where ns = any($1::bytea[])`),
		putFence: in(`
			insert into quipu.fence as f values ($1, $2, $3, $4)
			on conflict (ns, kind, view) do update set least = greatest(f.least, excluded.least)`),

		// The epochs stand alone once more, so that only their tables are planned for.
		loadParts: in(`
			select u.i - 1, p.value, p.bytes
			from unnest($1::bigint[], $2::bytea[], $3::bytea[]) with ordinality as u(epoch, ns, place, i)
			cross join lateral (
				select * from quipu.part p
				where p.epoch = u.epoch and p.ns = u.ns and p.place = u.place and p.epoch = any($4::bigint[]) offset 0) as p`),
		putParts: in(`
			insert into quipu.part
			select u.* from unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[]) as u
			on conflict (ns, place, epoch) do update set value = excluded.value, bytes = excluded.bytes`),
		dropParts: in(`
			delete from quipu.part p using unnest($1::bigint[], $2::bytea[], $3::bytea[]) as u(epoch, ns, place)
			where p.epoch = u.epoch and p.ns = u.ns and p.place = u.place and p.epoch = any($4::bigint[])`),
		tallyParts: in(`
			insert into quipu.part_tally as t
			select u.ns, u.kind, u.view, u.epoch, pg_backend_pid() % 32, u.total, u.proof
			from unnest($1::bytea[], $2::smallint[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[]) as u(ns, kind, view, epoch, total, proof)
			on conflict (ns, kind, view, epoch, slot) do update set
				total = quipu.wrap(t.total, excluded.total), proof = quipu.wrap(t.proof, excluded.proof)`),
		readParts: in(`
			select u.i - 1, p.value, p.bytes, (select quipu.now_ms())
			from unnest($1::bigint[], $2::bytea[], $3::bytea[]) with ordinality as u(epoch, ns, place, i)
			cross join lateral (
				select * from quipu.part p
				where p.epoch = u.epoch and p.ns = u.ns and p.place = u.place and p.epoch = any($4::bigint[])
					and ` + kept + ` offset 0) as p`),
		scanEpoch: [2]string{scan(`p.epoch = $5`, ""), scan(`p.epoch = $5`, " desc")},
		scanParts: [2]string{scan(`$5::bigint is null`, ""), scan(`$5::bigint is null`, " desc")},
		epochs: in(`
			select substr(c.relname, 6) from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
			where i.inhparent = 'quipu.part'::regclass and c.relname <> 'part_none'`),
		addEpoch: in(`
			create table quipu.part_%[1]s (like quipu.part including all) with (fillfactor = 70);
			alter table quipu.part attach partition quipu.part_%[1]s for values in (%[2]d)`),
		liveEpochs: in(`
			select quipu.now_ms(), array(
				select distinct t.epoch from quipu.part_tally t
				left join quipu.fence f on f.ns = t.ns and f.kind = t.kind and f.view = t.view
				where t.epoch >= coalesce(f.least, 0))`),
		lockParts: in(`lock table only quipu.part in access exclusive mode`),
		// The tally stays, in one row for each view, whose epoch is -1.
		dropEpoch: in(`
			drop table quipu.part_%[1]s;
			with gone as (delete from quipu.part_tally where epoch = %[2]d returning *)
			insert into quipu.part_tally as t
			select ns, kind, view, -1, 0, ` + wrapped("total") + `, ` + wrapped("proof") + ` from gone group by ns, kind, view
			on conflict (ns, kind, view, epoch, slot) do update set
				total = quipu.wrap(t.total, excluded.total), proof = quipu.wrap(t.proof, excluded.proof)`),

		auditParts: in(`select ns, place, epoch, value from quipu.part p where ` + kept),
		auditEpochs: in(`
			select ns, kind, view, epoch, total, proof from quipu.part_tally t
			where coalesce((select f.least from quipu.fence f where f.ns = t.ns and f.kind = t.kind and f.view = t.view), 0) <= t.epoch`),
	}
}

// wrapped returns the sum of a column, which wraps around as quipu.wrap does.
func wrapped(column string) string {
	return "(mod(mod(sum(" + column + "), 18446744073709551616) + 27670116110564327424, 18446744073709551616) - 9223372036854775808)::bigint"
}

// kept is that a part is not below its floor. It is a value that is looked up, not a
// join, so that parts are read in the order of their index.
const kept = `(p.epoch < 0 or p.epoch >= coalesce((
	select f.least from quipu.fence f
	where f.ns = p.ns and f.kind = get_byte(p.place, 0) and f.view = get_byte(p.place, 1) * 256 + get_byte(p.place, 2)), 0))`
