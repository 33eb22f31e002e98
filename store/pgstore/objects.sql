-- What was added to format 3 after it was made: keys that hold bytes. It is made after the
-- other tables, and by the migration.

-- The row of an object has the value 0, the term 0, and the negative of its version; its
-- deadline is apart. No other row has the term 0, and whoever adds to a row skips it
-- then, also as servers of before do it: they can't read the version either, so they fail. The
-- bytes are in part_none, and go when the row goes.
alter table quipu.cells add column if not exists until bigint;
create index if not exists cell_until on quipu.cells (until) where until > 0;
