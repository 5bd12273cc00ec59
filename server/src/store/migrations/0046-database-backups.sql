-- Backups of databases. Nothing here goes with the database, its environment or its organization: what holds data goes
-- only by a recorded deletion, which is the state DELETING.
create table backup (
  id uuid primary key,
  organization_id uuid not null,
  database_id uuid not null,
  environment_id uuid not null,
  -- Null: a folder of the server.
  storage_id uuid,
  -- As the database was called then.
  database_name text not null,
  type text not null,
  version text not null,
  name text not null,
  message text not null,
  origin text not null check (origin in ('REQUEST', 'SCHEDULE')),
  state text not null default 'QUEUED'
    check (state in ('QUEUED', 'RUNNING', 'VERIFYING', 'VERIFIED', 'UNVERIFIED', 'FAILED', 'DELETING')),
  reason text,
  -- Where it was made, and what its own server needs to be started beside it.
  cluster_id uuid,
  image text,
  memory_mb integer,
  -- The name of the stored file, and its key; of the last attempt that began.
  object text,
  sealed_key text,
  -- The control plane that made it: a restored copy of this database is another one.
  made_by text,
  raw_bytes bigint,
  stored_bytes bigint,
  sha256 text,
  -- Rows by table: {"name": [when the dump began, when it ended]}; null if there were too many tables.
  tables jsonb,
  attempts integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  finished_at timestamptz,
  -- When the present state must have ended.
  deadline_at timestamptz not null default 'infinity',
  due_at timestamptz not null default clock_timestamp(),
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index backup_due on backup (due_at) where due_at < 'infinity';
create index backup_of_database on backup (database_id, created_at desc, id);
create index backup_of_organization on backup (organization_id, created_at desc, id);

-- Loads of a backup into a database.
create table database_restore (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  database_id uuid not null references node (id) on delete cascade,
  backup_id uuid not null,
  -- What the database has may be replaced.
  replaces boolean not null,
  state text not null default 'QUEUED' check (state in ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED')),
  reason text,
  attempts integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  deadline_at timestamptz not null,
  due_at timestamptz not null default clock_timestamp(),
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index database_restore_due on database_restore (due_at) where due_at < 'infinity';
create index database_restore_list on database_restore (database_id, created_at desc);
create unique index database_restore_open on database_restore (database_id) where state in ('QUEUED', 'RUNNING');
