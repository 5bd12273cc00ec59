-- Services that are deployed by a push: the repository and branch that each follows, and the head that was judged last
-- (null before the first look, '' while the branch was missing). Repositories are asked for their heads when a git host
-- has told of a push, and every so often; each by one server at a time, under a lease as deployments are.
create table watched_repository (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  url text not null,
  -- Of the URL, in small letters, without `.git`: what a git host calls the repository.
  path text not null,
  git_token_id uuid,
  next_at timestamptz not null default '-infinity',
  -- When a git host last told of a push that was one.
  heard_at timestamptz,
  failures integer not null default 0,
  error jsonb,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index watched_repository_next on watched_repository (next_at);
create index watched_repository_path on watched_repository (organization_id, path);
create index watched_repository_leased on watched_repository (organization_id) where lease_until > '-infinity';

create table followed_branch (
  service_id uuid primary key references node (id) on delete cascade,
  repository_id uuid not null,
  branch text not null,
  seen text,
  -- What became of the last new head: {commit_id, at, outcome, reason, deployment_request_id}.
  judged jsonb
);
create index followed_branch_repository on followed_branch (repository_id, branch);
create index followed_branch_new on followed_branch (repository_id) where seen is null;

-- What a git host told of a push, until a look has found it or its tries are used up. Only a reason to look.
create table push_hint (
  id uuid primary key default gen_random_uuid(),
  repository_id uuid not null references watched_repository (id) on delete cascade,
  branch text not null,
  commit_id text,
  pusher text,
  tries integer not null default 0,
  due_at timestamptz not null default clock_timestamp()
);
create index push_hint_due on push_hint (due_at);
create index push_hint_repository on push_hint (repository_id);

-- Deliveries of git hosts that were accepted, so that none is accepted twice: by their bodies, and by their ids.
create table git_delivery (
  webhook_id uuid not null references node (id) on delete cascade,
  digest bytea not null,
  delivery_id text,
  received_at timestamptz not null default clock_timestamp(),
  primary key (webhook_id, digest)
);
create unique index git_delivery_id on git_delivery (webhook_id, delivery_id) where delivery_id is not null;
create index git_delivery_newest on git_delivery (webhook_id, received_at desc);
create index git_delivery_age on git_delivery (received_at);

-- [url, branch, git token] of a service that is to be deployed by pushes; null for all others.
create function pushed_repository(kind text, spec jsonb) returns jsonb language sql immutable as $$
  select jsonb_build_array(r ->> 'url', r ->> 'branch', r ->> 'git_token_id')
  from (select coalesce(nullif(spec -> 'git_repository', 'null'), nullif(spec #> '{source,docker,git_repository}', 'null'),
    nullif(spec #> '{terraform_files_source,git_repository}', 'null')) as r) found
  where kind in ('application', 'job', 'terraform') and r is not null
    and (spec ->> 'auto_deploy' = 'true' or spec #>> '{auto_deploy_config,auto_deploy}' = 'true')
$$;

-- The same for the same repository, read with the same token by the same organization.
create function watched_repository_id(organization_id uuid, pushed jsonb) returns uuid language sql immutable as $$
  select md5(organization_id::text || ' ' || coalesce(pushed ->> 2, '') || ' ' || (pushed ->> 0))::uuid
$$;

create function repository_path(url text) returns text language sql immutable as $$
  select lower(regexp_replace(regexp_replace(url, '^[A-Za-z]+://[^/]*/+', ''), '(\.git)?/*$', ''))
$$;

create function follow_branch() returns trigger language plpgsql as $$
declare
  pushed jsonb := pushed_repository(new.kind, new.spec);
begin
  if pushed is null then
    delete from followed_branch where service_id = new.id;
    return null;
  end if;
  -- Nothing is locked that a look holds: it holds environments too.
  insert into watched_repository (id, organization_id, url, path, git_token_id)
    values (watched_repository_id(new.organization_id, pushed), new.organization_id, pushed ->> 0,
      repository_path(pushed ->> 0), (pushed ->> 2)::uuid)
    on conflict do nothing;
  insert into followed_branch as f (service_id, repository_id, branch)
    values (new.id, watched_repository_id(new.organization_id, pushed), pushed ->> 1)
    on conflict (service_id) do update set repository_id = excluded.repository_id, branch = excluded.branch, seen = null,
      judged = null where (f.repository_id, f.branch) is distinct from (excluded.repository_id, excluded.branch);
  perform pg_notify('slipway_push', '');
  return null;
end $$;

create trigger branch_followed after insert on node for each row
  when (pushed_repository(new.kind, new.spec) is not null) execute function follow_branch();
create trigger branch_changed after update of spec on node for each row
  when (pushed_repository(old.kind, old.spec) is distinct from pushed_repository(new.kind, new.spec))
  execute function follow_branch();

insert into watched_repository (id, organization_id, url, path, git_token_id)
  select distinct watched_repository_id(organization_id, pushed), organization_id, pushed ->> 0,
    repository_path(pushed ->> 0), (pushed ->> 2)::uuid
  from (select organization_id, pushed_repository(kind, spec) as pushed from node where name_scope = 'service') services
  where pushed is not null;
insert into followed_branch (service_id, repository_id, branch)
  select id, watched_repository_id(organization_id, pushed), pushed ->> 1
  from (select id, organization_id, pushed_repository(kind, spec) as pushed from node where name_scope = 'service') services
  where pushed is not null;
