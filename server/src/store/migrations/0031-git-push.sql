-- Repositories that applications have on this server itself (`slipway:internal`): what was pushed, in packs, and where its
-- branches and tags are. Bare repositories on the disks of servers are made of these rows. One push at a time, under a lease.
create table git_repository (
  id uuid primary key references node (id) on delete cascade,
  organization_id uuid not null references node (id) on delete cascade,
  -- What became of the last push: {commit_id, at, outcome, reason, deployment_request_id}.
  judged jsonb,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index git_repository_organization on git_repository (organization_id);

create table git_ref (
  repository_id uuid not null references git_repository (id) on delete cascade,
  name text not null,
  -- An annotated tag is an object of its own.
  object_id text not null,
  commit_id text not null,
  -- Where those who push see the branch while its last deployment has failed; null: nowhere.
  base_id text,
  primary key (repository_id, name)
);

-- Complete in itself: it needs no other pack. Without `accepted` nobody reads it; who received it may have died.
create table git_pack (
  id uuid primary key,
  repository_id uuid not null references git_repository (id) on delete cascade,
  name text,
  bytes bigint not null default 0,
  accepted boolean not null default false,
  created_at timestamptz not null default clock_timestamp()
);
create index git_pack_repository on git_pack (repository_id);
create index git_pack_left on git_pack (created_at) where not accepted;

create table git_pack_part (
  pack_id uuid not null references git_pack (id) on delete cascade,
  part integer not null,
  bytes bytea not null,
  primary key (pack_id, part)
);
-- Packs are compressed.
alter table git_pack_part alter column bytes set storage external;

-- As before, but for repositories on this server: nobody has to ask for what is pushed there.
create or replace function pushed_repository(kind text, spec jsonb) returns jsonb language sql immutable as $$
  select jsonb_build_array(r ->> 'url', r ->> 'branch', r ->> 'git_token_id')
  from (select coalesce(nullif(spec -> 'git_repository', 'null'), nullif(spec #> '{source,docker,git_repository}', 'null'),
    nullif(spec #> '{terraform_files_source,git_repository}', 'null')) as r) found
  where kind in ('application', 'job', 'terraform') and r is not null and r ->> 'url' <> 'slipway:internal'
    and (spec ->> 'auto_deploy' = 'true' or spec #>> '{auto_deploy_config,auto_deploy}' = 'true')
$$;
