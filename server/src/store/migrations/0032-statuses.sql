-- What a git host is still to be told of a commit that a push has deployed: a row a service and commit, until the end
-- of the deployment is told or nobody wants to hear it. Written with the deployment, told by one server at a time.
create table commit_status (
  id uuid primary key default gen_random_uuid(),
  organization_id uuid not null references node (id) on delete cascade,
  service_id uuid not null,
  -- `project/environment/service`, as they were called then.
  name text not null,
  url text not null,
  git_token_id uuid not null,
  commit_id text not null,
  -- Null: the deployment was refused, for the reason.
  deployment_id uuid,
  reason text,
  -- What the host knows: PENDING, or nothing.
  told text,
  -- Raised by each change of the deployment, so that none is missed while the host is being told of the one before.
  changes bigint not null default 0,
  tries integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  due_at timestamptz not null default clock_timestamp(),
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity',
  unique (service_id, commit_id)
);
create index commit_status_due on commit_status (due_at);
create index commit_status_deployment on commit_status (deployment_id);
create index commit_status_leased on commit_status (organization_id) where lease_until > '-infinity';

-- Only what nobody has failed to tell comes sooner: a host that is away is asked no more often for it.
-- `service` null: of all of the deployment, locked in one order.
create function tell_commit_status(deployment uuid, service uuid) returns void language plpgsql as $$
begin
  update commit_status set changes = changes + 1, due_at = case when tries = 0 then clock_timestamp() else due_at end
    where id in (select s.id from commit_status s where s.deployment_id = deployment
      and (service is null or s.service_id = service) order by s.id for update);
  if found then
    perform pg_notify('slipway_commit_status', '');
  end if;
end $$;

create function deployment_service_ended() returns trigger language plpgsql as $$
begin
  perform tell_commit_status(new.deployment_id, new.service_id);
  return null;
end $$;
create trigger commit_status_of_service after update of finished_at on deployment_service for each row
  when (old.finished_at is null and new.finished_at is not null) execute function deployment_service_ended();

create function deployment_ended() returns trigger language plpgsql as $$
begin
  perform tell_commit_status(new.id, null);
  return null;
end $$;
create trigger commit_status_of_deployment after update of state on deployment for each row
  when (old.state is distinct from new.state and new.state in ('SUCCEEDED', 'FAILED', 'CANCELED'))
  execute function deployment_ended();

-- Images whose tags are followed, as watched_repository is for branches: each is asked for its digest every so often,
-- by one server at a time.
create table watched_image (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  registry_id uuid,
  name text not null,
  tag text not null,
  next_at timestamptz not null default '-infinity',
  failures integer not null default 0,
  error jsonb,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index watched_image_next on watched_image (next_at);
create index watched_image_organization on watched_image (organization_id);
create index watched_image_leased on watched_image (organization_id) where lease_until > '-infinity';

create table followed_image (
  service_id uuid primary key references node (id) on delete cascade,
  image_id uuid not null,
  -- The reference by digest that was found last; null before the first look.
  seen text
);
create index followed_image_image on followed_image (image_id);
create index followed_image_new on followed_image (image_id) where seen is null;

-- [registry, name, tag] of the image of a service that is to be deployed when its tag moves; null for all others.
create function moving_image(kind text, spec jsonb) returns jsonb language sql immutable as $$
  select jsonb_build_array(i ->> 'registry_id', i ->> 'image_name', i ->> 'tag')
  from (select case kind when 'container' then spec when 'job' then nullif(spec #> '{source,image}', 'null') end as i) found
  where spec ->> 'auto_deploy' = 'true' and i ->> 'image_name' is not null and i ->> 'tag' is not null
$$;

create function watched_image_id(organization_id uuid, image jsonb) returns uuid language sql immutable as $$
  select md5(organization_id::text || ' ' || image::text)::uuid
$$;

create function follow_image() returns trigger language plpgsql as $$
declare
  image jsonb := moving_image(new.kind, new.spec);
begin
  if image is null then
    delete from followed_image where service_id = new.id;
    return null;
  end if;
  insert into watched_image (id, organization_id, registry_id, name, tag)
    values (watched_image_id(new.organization_id, image), new.organization_id, (image ->> 0)::uuid, image ->> 1, image ->> 2)
    on conflict do nothing;
  insert into followed_image as f (service_id, image_id) values (new.id, watched_image_id(new.organization_id, image))
    on conflict (service_id) do update set image_id = excluded.image_id, seen = null
      where f.image_id is distinct from excluded.image_id;
  perform pg_notify('slipway_image', '');
  return null;
end $$;

create trigger image_followed after insert on node for each row
  when (moving_image(new.kind, new.spec) is not null) execute function follow_image();
create trigger image_changed after update of spec on node for each row
  when (moving_image(old.kind, old.spec) is distinct from moving_image(new.kind, new.spec))
  execute function follow_image();

insert into watched_image (id, organization_id, registry_id, name, tag)
  select distinct watched_image_id(organization_id, image), organization_id, (image ->> 0)::uuid, image ->> 1, image ->> 2
  from (select organization_id, moving_image(kind, spec) as image from node where name_scope = 'service') services
  where image is not null;
insert into followed_image (service_id, image_id)
  select id, watched_image_id(organization_id, image)
  from (select id, organization_id, moving_image(kind, spec) as image from node where name_scope = 'service') services
  where image is not null;
