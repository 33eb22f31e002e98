package pgstore

// statements are the SQL of a store, with the name of its schema.
type statements struct {
	look, window, setWindow                    string
	plain, quietly, tokened, one, nonePending  string
	lockMarks, lockCells                       string
	loadCells, loadTokens, loadPending         string
	loadMarks, loadSpaces, countSpaces         string
	draw, raise, due                           string
	putCells, dropCells, putTokens, dropTokens string
	putMark, dropMarks, raiseFloor             string
	count, tally, dropPending, refuse          string
	read, scan, size, lookup, namespaces       string
	replayed                                   string
	dueCells, dueTokens, pendingCells          string
	generations, addGeneration, dropGeneration string
	auditCells, auditMarks, auditSpaces        string
	auditTokens, auditPending, auditVersion    string
}

func newStatements(schema string) statements {
	in := func(sql string) string { return inSchema(schema, sql) }
	const batch = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18`
	apply := func(function, args string) string {
		return in(`
			select coalesce(_took, 0), _version, _odd, _versions, _afters, _terms, _fresh from quipu.` + function + `(
				` + args + `)`)
	}
	return statements{
		look: in(`
			select current_setting('fsync')::bool, current_setting('synchronous_commit') <> 'off',
				current_setting('max_connections')::bigint,
				greatest((select max(at_ms) from quipu.tally), (select max(at_ms) from quipu.mark), 0)`),
		window:    in(`select window_ms from quipu.meta`),
		setWindow: in(`update quipu.meta set window_ms = $1 where window_ms is null`),
		plain:     apply("plain", batch),
		quietly:   apply("quietly", batch),
		tokened: apply("tokened", batch+`,
				$19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32`),
		// As quipu.plain, of one cell that is there. If the mark is another, or anything else is
		// unusual, no row is changed and none returned. The mark is locked first.
		one: in(`
			with due as materialized (
				select from quipu.mark m where m.writer = $1 and m.seq = $2 for update),
			put as (
				update quipu.cell c set value = c.value + $7, version = greatest(quipu.draw($8), c.version + $8)
				where c.ns = $5 and c.key = $6 and exists (select from due)
					and (c.term is null or c.term < 0 or c.term > coalesce($14, quipu.now_ms()))
					and ($9::bigint < 0 or greatest(-c.term, 0) = $9)
					and not ($13 and exists (select from quipu.pending p where p.ns = $5 and p.key = $6))
				returning c.value, c.version, c.term, clock_timestamp() as at),
			noted as (
				update quipu.mark m set
					seq = $3, digest = $4, at_ms = greatest(m.at_ms, coalesce($14, quipu.now_ms())),
					deltas = m.deltas + $10, total = quipu.wrap(m.total, $11), proof = quipu.wrap(m.proof, $12),
					results = null, version = p.version, odd = null, versions = null, fresh = null,
					afters = case when $13 then array[p.value] end, terms = case when $13 then array[p.term] end
				from put p where m.writer = $1)
			select (extract(epoch from p.at - statement_timestamp()) * 1000000)::bigint, p.version, p.value, p.term from put p`),
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
			insert into quipu.cell as c (ns, key, value, version)
			select u.ns, u.key, 0, 0 from unnest($1::bytea[], $2::bytea[]) as u(ns, key)
			on conflict (ns, key) do update set value = c.value where false`),
		// What is named is found one by one by its index, which the offset insists on: a plan
		// made while a table was new would read all of it when it has grown.
		loadCells: in(`
			select u.i - 1, c.value, c.version, coalesce(c.term, 0)
			from unnest($1::bytea[], $2::bytea[]) with ordinality as u(ns, key, i)
			cross join lateral (select * from quipu.cell c where c.ns = u.ns and c.key = u.key offset 0) as c`),
		loadTokens: in(`
			select u.i - 1, t.gen, t.op, t.n, t.want, t.digest, t.at_ms, t.before, t.after, t.version
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
		// What is drawn from now on is above the versions of cells that go, and who
		// has drawn before is told.
		raise: in(`
			select count(nextval('quipu.version')), nextval('quipu.removal')
			from generate_series((select last_value from quipu.version) + 1, $1)`),
		loadMarks: in(`
			select quipu.now_ms(), m.floor, case when $1 then (select count(*) from quipu.mark) else 0 end,
				(select max(gen) from quipu.generation)
			from quipu.meta m`),
		loadSpaces: in(`
			select s.ns, coalesce(sum(s.n) filter (where s.gen = 0), 0)::bigint, coalesce(sum(s.n) filter (where s.gen > 0), 0)::bigint
			from quipu.space s where s.ns = any($1::bytea[]) group by s.ns`),
		countSpaces: in(`
			select count(*) from (
				select from quipu.space s where $1 and s.ns <> '' group by s.ns having sum(s.n) > 0) as s`),
		due: in(`
			select exists (select from quipu.cell c where c.term > 0 and c.term <= $1)
				or exists (select from quipu.token t where t.at_ms <= $2)`),

		putCells: in(`
			update quipu.cell c set value = u.value, version = u.version, term = nullif(u.term, 0)
			from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[]) as u(ns, key, value, version, term)
			where c.ns = u.ns and c.key = u.key`),
		dropCells: in(`
			delete from quipu.cell c using unnest($1::bytea[], $2::bytea[]) as u(ns, key)
			where c.ns = u.ns and c.key = u.key`),
		dropTokens: in(`
			delete from quipu.token t using unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[]) as u(gen, ns, key, token)
			where t.gen = u.gen and t.ns = u.ns and t.key = u.key and t.token = u.token`),
		putTokens: in(`
			insert into quipu.token
			select $1::int, u.* from unnest(
				$2::bytea[], $3::bytea[], $4::bytea[], $5::smallint[], $6::bigint[], $7::boolean[],
				$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) as u`),
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

		// What is pending is looked for only if anything is.
		read: in(`
			select u.i - 1, coalesce(c.value, 0), coalesce(c.version, 0), coalesce(c.term, 0), quipu.now_ms(),
				case when (select exists (select from quipu.pending))
					then (select min(p.at_ms) from quipu.pending p where p.ns = u.ns and p.key = u.key) end
			from unnest($1::bytea[], $2::bytea[]) with ordinality as u(ns, key, i)
			left join lateral (select * from quipu.cell c where c.ns = u.ns and c.key = u.key offset 0) as c on true`),
		scan: in(`
			with c as (
				select c.key, c.value, c.version, c.term from quipu.cell c
				where c.ns = $1 and c.key > $2 and c.key >= $3 and ($4::bytea is null or c.key < $4)
				order by c.key limit $5),
			p as (
				select p.key, min(p.at_ms) as at_ms from quipu.pending p
				where (select exists (select from quipu.pending))
					and p.ns = $1 and p.key > $2 and p.key >= $3 and ($4::bytea is null or p.key < $4)
				group by p.key order by p.key limit $5)
			select key, coalesce(c.value, 0), coalesce(c.version, 0), coalesce(c.term, 0), quipu.now_ms(), p.at_ms
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
				(select c.ns from quipu.cell c where c.ns > $1 order by c.ns limit 1)
				union all
				select (select c.ns from quipu.cell c where c.ns > s.ns order by c.ns limit 1) from s where s.ns is not null)
			(select s.ns from s where s.ns is not null limit $2)
			union (select distinct p.ns from quipu.pending p where p.ns > $1 order by p.ns limit $2)
			order by ns limit $2`),
		lookup: in(`
			select quipu.now_ms(), t.op, t.n, t.want, t.digest, t.at_ms, t.before, t.after, t.version
			from (values (1)) as one left join quipu.token t on t.ns = $1 and t.key = $2 and t.token = $3
			order by t.at_ms desc nulls last limit 1`),

		dueCells: in(`
			select c.ns, c.key from quipu.cell c where c.term > 0 and c.term <= coalesce($1, quipu.now_ms())
			order by c.term limit $2`),
		dueTokens: in(`
			with due as (
				select t.gen, t.ns, t.key, t.token from quipu.token t
				where t.at_ms <= $1 order by t.at_ms limit $2 for update skip locked),
			gone as (
				delete from quipu.token t using due d
				where t.gen = d.gen and t.ns = d.ns and t.key = d.key and t.token = d.token returning t.gen, t.ns)
			select ns, gen, count(*) from gone group by ns, gen order by ns, gen`),
		pendingCells: in(`select distinct p.ns, p.key from quipu.pending p limit $1`),
		generations:  in(`select gen, from_ms, quipu.now_ms() from quipu.generation order by gen`),
		addGeneration: in(`
			create table quipu.token_%[1]d (like quipu.token including all);
			alter table quipu.token attach partition quipu.token_%[1]d for values in (%[1]d);
			insert into quipu.generation values (%[1]d, %[2]d)`),
		dropGeneration: in(`
			drop table quipu.token_%[1]d;
			delete from quipu.space where gen = %[1]d;
			delete from quipu.generation where gen = %[1]d`),

		auditCells: in(`select ns, key, value, version from quipu.cell`),
		auditMarks: in(`
			select deltas, total, proof from quipu.mark union all select deltas, total, proof from quipu.tally`),
		auditSpaces: in(`
			select ns, gen > 0, sum(n)::bigint from quipu.space group by ns, gen > 0
			having sum(n) <> 0`),
		auditVersion: in(`select case when is_called then last_value else 0 end from quipu.version`),
		auditTokens:  in(`select ns, count(*) from quipu.token group by ns`),
		auditPending: in(`select ns, count(*) from quipu.pending where token_gen is not null group by ns`),
	}
}
