-- What runs, what was released and what is reached from outside says on which cluster, so that each cluster is looked
-- after by itself. An environment stays on its cluster for its life, so this is written once, by triggers: no writer can
-- forget it. Where the cluster cannot be told it is the default one, the only one that services have ever run on.
create function cluster_of_environment(environment uuid, organization uuid) returns uuid language sql stable as $$
  select coalesce(
    (select c.id from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster'
     where e.id = environment),
    (select id from node where kind = 'cluster' and organization_id = organization
     order by (spec ->> 'is_default')::boolean desc nulls last, created_at limit 1),
    '00000000-0000-0000-0000-000000000000')
$$;

alter table service_state add column cluster_id uuid;
update service_state set cluster_id = cluster_of_environment(environment_id, organization_id);
alter table service_state alter column cluster_id set not null;
create index service_state_cluster on service_state (cluster_id);

create function cluster_of_service(service uuid, organization uuid) returns uuid language sql stable as $$
  select coalesce((select cluster_id from service_state where service_id = service),
    cluster_of_environment(null, organization))
$$;

-- Of services that are gone the environment may be gone too.
alter table release add column cluster_id uuid;
update release set cluster_id = cluster_of_service(service_id, organization_id);
alter table release alter column cluster_id set not null;

-- Ports are opened by the router, which is one for all clusters: the key stays as it is.
alter table outside_port add column cluster_id uuid;
update outside_port set cluster_id = cluster_of_service(service_id, null);
alter table outside_port alter column cluster_id set not null;

create function place_service() returns trigger language plpgsql as $$
begin
  new.cluster_id := coalesce(new.cluster_id, cluster_of_environment(new.environment_id, new.organization_id));
  return new;
end
$$;
create trigger service_placed before insert on service_state for each row execute function place_service();

create function place_release() returns trigger language plpgsql as $$
begin
  new.cluster_id := coalesce(new.cluster_id, cluster_of_service(new.service_id, new.organization_id));
  return new;
end
$$;
create trigger release_placed before insert on release for each row execute function place_release();

create function place_outside_port() returns trigger language plpgsql as $$
begin
  new.cluster_id := coalesce(new.cluster_id, cluster_of_service(new.service_id, null));
  return new;
end
$$;
create trigger outside_port_placed before insert on outside_port for each row execute function place_outside_port();

-- A built image is on the engine that built it. Without an organization: the operator's own, of this machine.
alter table image add column cluster_id uuid;
update image set cluster_id = cluster_of_environment(null, organization_id) where organization_id is not null;
alter table image drop constraint image_pkey;
create unique index image_content on image
  (content_key, (coalesce(cluster_id, '00000000-0000-0000-0000-000000000000')));

-- What a cluster's engine last said that it has, kept for while it does not answer. The cluster is 'local' for the
-- engine of this machine, the default cluster of every organization; else the id of its row.
create table cluster_capacity (
  cluster text primary key,
  cpu_millicores integer not null,
  memory_mb integer not null,
  architecture text not null,
  read_at timestamptz not null default clock_timestamp()
);
