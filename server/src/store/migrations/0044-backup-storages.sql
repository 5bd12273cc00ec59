-- When a backup storage was last tried, and what was wrong with it then; no code: nothing.
create table backup_storage_check (
  storage_id uuid primary key references node (id) on delete cascade,
  checked_at timestamptz not null default clock_timestamp(),
  code text,
  message text
);
