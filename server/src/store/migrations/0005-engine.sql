alter table deployment drop constraint deployment_action_check;
alter table deployment add constraint deployment_action_check
  check (action in ('DEPLOY', 'RESTART', 'STOP', 'UNINSTALL', 'DELETE'));

-- What an image was pulled as: a release keeps its digest, which says nothing to a reader.
alter table release add column if not exists source jsonb;

-- Services whose tasks run by the clock, while they are deployed and not stopped; `next_at` null: never again.
create table if not exists schedule (
  service_id uuid primary key references node (id) on delete cascade,
  expression text not null,
  time_zone text not null,
  next_at timestamptz
);
create index if not exists schedule_due on schedule (next_at);

-- One row a run by the clock, at most one of a service at a time; `fence` as of a deployment.
create table if not exists task_run (
  id uuid primary key,
  organization_id uuid not null,
  service_id uuid not null references node (id) on delete cascade,
  release_id uuid not null,
  due_at timestamptz not null,
  state text not null default 'RUNNING' check (state in ('RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
  worker text,
  lease_until timestamptz,
  fence bigint not null default 1,
  error jsonb,
  started_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz
);
create unique index if not exists task_run_open on task_run (service_id) where state = 'RUNNING';
create index if not exists task_run_history on task_run (service_id, started_at desc);
