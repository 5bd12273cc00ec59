-- What the fields of `change` were before, and of what was deleted all that it was.
alter table event add column original jsonb;
