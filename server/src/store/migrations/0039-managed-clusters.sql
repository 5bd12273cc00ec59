-- Clusters that a module of the operator makes at a cloud provider; a row from the first request on. What a run has made
-- there is in the state of the tool (task_state, under the id of the cluster).
create table managed_cluster (
  id uuid primary key references node (id) on delete cascade,
  organization_id uuid not null references node (id) on delete cascade,
  status text not null default 'READY',
  error text,
  -- Of Kubernetes, as asked of the module; null before the first deployment, or where the module names none.
  version text,
  is_stopped boolean not null default false,
  -- The configuration that was applied last, as a fingerprint.
  applied text,
  deployed_at timestamptz,
  last_run uuid,
  -- The kubeconfig that the module has told, sealed; counted, so that a new one is noticed.
  sealed text,
  seals bigint not null default 0,
  -- What is asked for or under way: one at a time.
  run_id uuid,
  action text check (action in ('DEPLOY', 'DRY_RUN', 'RESTART', 'UPGRADE', 'STOP', 'DELETE')),
  -- The configuration as it was when this was asked for, its fingerprint, and the status before.
  wanted jsonb,
  wanted_mark text,
  status_before text,
  asked_by text,
  is_canceled boolean not null default false,
  -- When a server first took it up.
  begun_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index managed_cluster_open on managed_cluster (lease_until) where run_id is not null;

-- What the runs of a cluster say, the newest runs only. `is_output`: printed by the tool, and read again by whoever takes
-- over its run.
create table cluster_log (
  id bigint generated always as identity primary key,
  cluster_id uuid not null references node (id) on delete cascade,
  run_id uuid not null,
  at timestamptz not null,
  level text not null check (level in ('info', 'error')),
  step text not null,
  text text not null,
  is_output boolean not null
);
create index cluster_log_cluster on cluster_log (cluster_id, id);
