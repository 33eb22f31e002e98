-- What makes format 3 of format 2, before parts.sql. The locks are taken in the order in
-- which transactions take them, and wait for those that are under way. A program that
-- knows format 2 does not find the names that it asks for any more: it would change
-- counters and nothing of what belongs to them.
lock table quipu.mark, quipu.cell, quipu.token, quipu.pending in access exclusive mode;
alter table quipu.cell rename to cells;
alter index quipu.cell_pkey rename to cells_pkey;
alter table quipu.token add outcome smallint not null default 1, add refused smallint not null default 0;
drop function if exists quipu.plain, quipu.quietly, quipu.tokened;
update quipu.meta set format = 3;
