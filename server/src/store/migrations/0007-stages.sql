-- Deployment stages of the environments that changed theirs; all others have the four default ones, without rows.
create table if not exists deployment_stage (
  id uuid primary key,
  organization_id uuid not null,
  environment_id uuid not null references node (id) on delete cascade,
  name text not null,
  description text not null default '',
  position integer not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create unique index if not exists deployment_stage_name on deployment_stage (environment_id, lower(name));

-- Null: the default stage of the service's kind.
alter table service_state add column if not exists stage_id uuid references deployment_stage (id) on delete set null;
alter table service_state add column if not exists is_skipped boolean not null default false;
create index if not exists service_state_stage on service_state (stage_id) where stage_id is not null;

-- The stage as it was called when the service was deployed in it.
alter table deployment_service add column if not exists stage_id uuid;
alter table deployment_service add column if not exists stage_name text;

-- Value of an EXTERNAL_SECRET: a reference that this secret manager is to resolve.
alter table variable add column if not exists secret_manager_access_id uuid;
