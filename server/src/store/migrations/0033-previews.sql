-- Repositories that are asked for their open pull requests, as watched_repository is for branches: those of services with
-- `auto_preview` in environments whose deployment rule has it too, and those that previews are of.
create table preview_source (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  url text not null,
  path text not null,
  git_token_id uuid not null,
  next_at timestamptz not null default '-infinity',
  -- Raised when a git host tells of a pull request, so that nothing is missed while one is being read.
  asked bigint not null default 0,
  failures integer not null default 0,
  error jsonb,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index preview_source_next on preview_source (next_at);
create index preview_source_path on preview_source (organization_id, path);

-- A pull request that is open, and the environment made for it; until both are gone.
create table preview (
  id uuid primary key default gen_random_uuid(),
  organization_id uuid not null references node (id) on delete cascade,
  project_id uuid not null,
  -- What it is a clone of.
  origin_id uuid not null,
  source_id uuid not null references preview_source (id) on delete cascade,
  number integer not null,
  title text not null,
  url text not null,
  branch text not null,
  is_fork boolean not null,
  -- The head of the branch; null while it is not there.
  commit_id text,
  is_open boolean not null default true,
  state text not null default 'WAITING' check (state in ('WAITING', 'ACTIVE', 'REMOVING', 'EXPIRED', 'REFUSED')),
  reason text,
  -- What was made, with which commit, and until when. No reference: what is gone is found out.
  environment_id uuid,
  deployed_commit text,
  deployment_id uuid,
  expires_at timestamptz,
  is_expired boolean not null default false,
  -- What was built for it, and where: it goes with the environment.
  images text[] not null default '{}',
  cluster_id uuid,
  -- The comment as the host has it.
  commented text,
  comment_failures integer not null default 0,
  comment_at timestamptz not null default '-infinity',
  created_at timestamptz not null default clock_timestamp(),
  next_at timestamptz not null default '-infinity',
  -- Raised by each news of the request.
  changes bigint not null default 0,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity',
  unique (origin_id, source_id, number)
);
create index preview_next on preview (next_at);
create index preview_environment on preview (environment_id) where environment_id is not null;
create index preview_project on preview (project_id);
create index preview_source_of on preview (source_id);

-- The repository of a service; null for one without.
create function repository_of(spec jsonb) returns jsonb language sql immutable as $$
  select coalesce(nullif(spec -> 'git_repository', 'null'), nullif(spec #> '{source,docker,git_repository}', 'null'),
    nullif(spec #> '{terraform_files_source,git_repository}', 'null'))
$$;

-- The same for whatever is written of the same repository.
create function repository_key(url text) returns text language sql immutable as $$
  select lower(regexp_replace(url, '(\.git)?/*$', ''))
$$;

-- Whether pull requests to the branch of a service get a preview of its environment.
create function is_previewed(service_kind text, service jsonb, environment jsonb) returns boolean language sql immutable as $$
  select coalesce(service_kind in ('application', 'job') and service ->> 'auto_preview' = 'true'
    and environment #>> '{deployment_rule,auto_preview}' = 'true' and environment ->> 'mode' <> 'PREVIEW', false)
$$;

create function preview_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('slipway_preview_source', '');
  return null;
end $$;
create trigger preview_rule_changed after update of spec on node for each row
  when (old.kind = 'environment' and old.spec -> 'deployment_rule' is distinct from new.spec -> 'deployment_rule')
  execute function preview_changed();

-- The end of what a preview waits for. One that is being worked on is passed over: it looks again by itself, and what
-- works on it may wait for what this holds.
create function preview_deployed() returns trigger language plpgsql as $$
begin
  update preview set changes = changes + 1, next_at = '-infinity'
    where id in (select p.id from preview p where p.deployment_id = new.id for update skip locked);
  if found then
    perform pg_notify('slipway_preview', '');
  end if;
  return null;
end $$;
create index preview_deployment on preview (deployment_id) where deployment_id is not null;
create trigger preview_of_deployment after update of state on deployment for each row
  when (old.state is distinct from new.state and new.state in ('SUCCEEDED', 'FAILED', 'CANCELED'))
  execute function preview_deployed();
