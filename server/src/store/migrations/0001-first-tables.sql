-- The tree of everything managed. Names are unique in their parent within a name scope, whatever their case:
-- all service kinds share the scope 'service', every other kind is a scope of its own. A null name is not compared.
create table node (
  id uuid primary key,
  organization_id uuid not null,
  kind text not null,
  parent_id uuid references node (id) on delete cascade,
  name_scope text not null,
  name text,
  spec jsonb not null default '{}',
  sealed jsonb not null default '{}',
  version integer not null default 1,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  updated_by uuid
);
create unique index node_name on node (parent_id, name_scope, lower(name));
create index node_children on node (parent_id, kind, created_at, id);
create index node_organization on node (organization_id, kind, created_at, id);
-- Which environments run on a cluster: the cluster's own list, and whether it may be deleted.
create index node_cluster on node ((spec ->> 'cluster_id'), created_at) where kind = 'environment';
-- How many services use a git token.
create index node_git_token on node ((spec -> 'git_repository' ->> 'git_token_id'))
  where spec -> 'git_repository' ->> 'git_token_id' is not null;

-- Data keys, one current per organization, wrapped by a master key.
create table data_key (
  id uuid primary key,
  organization_id uuid not null,
  master_key_id text not null,
  wrapped text not null,
  created_at timestamptz not null default clock_timestamp(),
  retired_at timestamptz
);
create unique index data_key_current on data_key (organization_id) where retired_at is null;

-- Variables and secrets of projects, environments and services. A secret has `sealed` and no `value`.
create table variable (
  id uuid primary key,
  organization_id uuid not null,
  parent_id uuid not null references node (id) on delete cascade,
  scope text not null,
  key text not null,
  value text,
  sealed text,
  is_secret boolean not null,
  variable_type text not null,
  mount_path text,
  description text,
  enable_interpolation_in_file boolean,
  target_id uuid references variable (id) on delete cascade,
  owned_by text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create unique index variable_key on variable (parent_id, key);
create index variable_target on variable (target_id) where target_id is not null;

create table api_token (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  name text not null,
  description text,
  prefix text not null,
  hash bytea not null,
  scopes text[] not null,
  created_by uuid,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  last_used_at timestamptz,
  last_used_ip text,
  revoked_at timestamptz
);
create unique index api_token_hash on api_token (hash);
create unique index api_token_name on api_token (organization_id, lower(name)) where revoked_at is null;

-- The deployment queue is this table. `fence` grows with every claim; a write of a worker that lost its lease is refused.
create table deployment (
  id uuid primary key,
  seq bigint generated always as identity,
  organization_id uuid not null,
  environment_id uuid not null,
  execution_number integer not null,
  action text not null check (action in ('DEPLOY', 'RESTART', 'STOP', 'DELETE')),
  whole_environment boolean not null default false,
  origin text not null,
  triggered_by text not null,
  request_id text,
  state text not null default 'QUEUED' check (state in ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
  cancel_requested_at timestamptz,
  worker text,
  lease_until timestamptz,
  fence bigint not null default 0,
  error jsonb,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  finished_at timestamptz
);
create unique index deployment_one_running on deployment (environment_id) where state = 'RUNNING';
create unique index deployment_execution on deployment (environment_id, execution_number);
create index deployment_queue on deployment (seq) where state = 'QUEUED';
create index deployment_waiting on deployment (environment_id, seq) where state = 'QUEUED';
create index deployment_leases on deployment (lease_until) where state = 'RUNNING';
create index deployment_history on deployment (environment_id, created_at desc, id desc);

-- `state` is the public service state (spec/answers 14) that the service had in this deployment.
create table deployment_service (
  deployment_id uuid not null references deployment (id) on delete cascade,
  service_id uuid not null,
  organization_id uuid not null,
  kind text not null,
  name text not null,
  stage integer not null default 0,
  action text not null,
  requested jsonb not null default '{}',
  state text not null,
  release_id uuid,
  error jsonb,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  finished_at timestamptz,
  primary key (deployment_id, service_id)
);
create index deployment_service_history on deployment_service (service_id, created_at desc, deployment_id desc);

-- One row a named step; `result` is small JSON that a resumed worker reads instead of doing the step again.
create table deployment_step (
  deployment_id uuid not null references deployment (id) on delete cascade,
  service_id uuid not null,
  name text not null,
  result jsonb,
  status text not null check (status in ('RUNNING', 'SUCCESS', 'ERROR', 'CANCEL', 'SKIP')),
  started_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  primary key (deployment_id, service_id, name)
);

-- Immutable: what one deployment runs. Rollback, plan and OUT_OF_DATE come from here.
create table release (
  id uuid primary key,
  organization_id uuid not null,
  service_id uuid not null,
  deployment_id uuid not null,
  image text not null,
  commit jsonb,
  workload jsonb not null,
  sealed_env text not null,
  hash text not null,
  created_at timestamptz not null default clock_timestamp()
);
create unique index release_deployment on release (service_id, deployment_id);
create index release_history on release (service_id, created_at desc, id desc);

-- One row a service: the pointer that makes status reads flat.
create table service_state (
  service_id uuid primary key references node (id) on delete cascade,
  environment_id uuid not null,
  organization_id uuid not null,
  kind text not null,
  state text not null default 'READY',
  action text not null default 'UNKNOWN',
  action_status text not null default 'NEVER',
  desired text not null default 'NONE' check (desired in ('NONE', 'RUNNING', 'STOPPED')),
  running_state text not null default 'STOPPED',
  deployment_id uuid,
  execution_id text,
  current_release_id uuid,
  -- Fingerprint of what the last success used, and of what a deployment would use now; the triggers below
  -- empty the second whenever something it depends on changes, and the next status read computes it again.
  deployed_hash text,
  wanted_hash text,
  wanted_version integer not null default 0,
  last_deployment_at timestamptz,
  updated_at timestamptz not null default clock_timestamp()
);
create index service_state_environment on service_state (environment_id);
create index service_state_desired on service_state (service_id) where desired = 'RUNNING';

-- Built images by content key.
create table image (
  content_key text primary key,
  reference text not null,
  image_id text not null,
  created_at timestamptz not null default clock_timestamp(),
  used_at timestamptz not null default clock_timestamp()
);

-- Deployment log in chunks: one row a flush, never one row a line. `lines` is a JSON array of {at, text, level}.
create table deployment_log (
  id bigint generated always as identity primary key,
  deployment_id uuid not null references deployment (id) on delete cascade,
  service_id uuid,
  step text not null,
  lines jsonb not null,
  created_at timestamptz not null default clock_timestamp()
);
create index deployment_log_read on deployment_log (deployment_id, id);

-- Audit events.
create table event (
  id uuid primary key,
  organization_id uuid not null,
  event_type text not null,
  target_type text not null,
  sub_target_type text,
  target_id uuid,
  target_name text,
  project_id uuid,
  environment_id uuid,
  change jsonb,
  origin text not null,
  triggered_by text not null,
  user_agent text,
  request_id text,
  created_at timestamptz not null default clock_timestamp()
);
create index event_history on event (organization_id, created_at desc, id desc);

-- One row per event and receiver, written with the change of state it tells about.
create table outbox (
  id uuid primary key,
  seq bigint generated always as identity,
  organization_id uuid not null,
  webhook_id uuid not null references node (id) on delete cascade,
  ordering_key uuid not null,
  event_type text not null,
  body text not null,
  attempts integer not null default 0,
  next_attempt_at timestamptz not null default clock_timestamp(),
  worker text,
  lease_until timestamptz,
  state text not null default 'PENDING' check (state in ('PENDING', 'DELIVERED', 'FAILED', 'DISCARDED')),
  created_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz
);
create index outbox_due on outbox (next_attempt_at) where state = 'PENDING';
create index outbox_order on outbox (webhook_id, ordering_key, seq) where state = 'PENDING';

-- One row an attempt.
create table delivery (
  id uuid primary key,
  outbox_id uuid not null references outbox (id) on delete cascade,
  webhook_id uuid not null references node (id) on delete cascade,
  attempt integer not null,
  event_type text not null,
  target_url text not null,
  request jsonb not null,
  response_status integer not null,
  response_body text,
  error text,
  duration_ms integer not null,
  created_at timestamptz not null default clock_timestamp()
);
create index delivery_history on delivery (webhook_id, created_at desc, id desc);

create table idempotency_key (
  organization_id uuid not null,
  method text not null,
  path text not null,
  key text not null,
  body_hash text not null,
  status integer,
  body text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (organization_id, method, path, key)
);
create index idempotency_key_age on idempotency_key (created_at);

-- Host names of the router; one service may have several.
create table route (
  host text primary key,
  organization_id uuid not null,
  environment_id uuid not null,
  service_id uuid not null references node (id) on delete cascade,
  port integer not null,
  is_default boolean not null default true,
  created_at timestamptz not null default clock_timestamp()
);
create index route_service on route (service_id);

-- Whatever changes a service's configuration or a variable it can see makes its wanted fingerprint unknown.
create function forget_wanted_hash_of_node() returns trigger language plpgsql as $$
begin
  update service_state set wanted_hash = null, wanted_version = wanted_version + 1
  where service_id = new.id or environment_id = new.id;
  return null;
end
$$;
create trigger node_changed after update of spec, sealed, name on node
  for each row execute function forget_wanted_hash_of_node();

create function forget_wanted_hash_of_variable() returns trigger language plpgsql as $$
declare
  changed_parent uuid := case when tg_op = 'DELETE' then old.parent_id else new.parent_id end;
begin
  update service_state set wanted_hash = null, wanted_version = wanted_version + 1
  where service_id = changed_parent or environment_id = changed_parent
    or environment_id in (select id from node where parent_id = changed_parent and kind = 'environment');
  return null;
end
$$;
create trigger variable_changed after insert or update or delete on variable
  for each row execute function forget_wanted_hash_of_variable();

-- Facts of this installation: its owner mark on the engine, the sealed key of fingerprints.
create table installation (
  name text primary key,
  value text not null
);
