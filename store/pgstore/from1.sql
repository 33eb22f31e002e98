-- What makes format 2 of format 1. The locks are taken in the order in which
-- transactions take them. A program that knows format 1 only does not find the
-- names that it asks for any more, and is refused: it would take a layout for a
-- deadline that has passed.
lock table quipu.mark, quipu.cell, quipu.pending in access exclusive mode;
alter table quipu.cell rename deadline_ms to term;
drop index quipu.cell_due;
create index cell_due on quipu.cell (term) where term > 0;
alter table quipu.mark rename deadlines to terms;
alter table quipu.mark add version bigint, add odd int[], alter odd set storage external;
alter table quipu.pending add token bytea;
create sequence quipu.removal as bigint cache 1;
select nextval('quipu.removal');
drop function quipu.plain, quipu.quietly;
update quipu.meta set format = 2;
