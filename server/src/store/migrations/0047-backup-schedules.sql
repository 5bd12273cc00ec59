-- When databases are backed up by the clock, and which of those backups are kept. What it has made outlives it.
create table backup_schedule (
  database_id uuid primary key references node (id) on delete cascade,
  organization_id uuid not null references node (id) on delete cascade,
  -- Null: a folder of the server.
  storage_id uuid,
  enabled boolean not null,
  expression text not null,
  time_zone text not null,
  keep_last integer not null,
  keep_daily integer not null,
  keep_weekly integer not null,
  keep_monthly integer not null,
  -- Null while it is not enabled, or if its expression is never met.
  next_at timestamptz
);
create index backup_schedule_due on backup_schedule (next_at) where next_at is not null;
