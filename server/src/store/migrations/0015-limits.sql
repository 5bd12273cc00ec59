-- What a service takes of its organization's limits, told by its configuration: memory and processor of all the
-- instances that it may have, and its volumes. What has no instances (jobs, modules) runs once at a time. Without an
-- upper bound (-1) it gets the instances that it asks for.
create function size_of_service(spec jsonb, out memory_mb bigint, out cpu_millicores bigint, out volumes integer,
  out volume_gb bigint) language plpgsql immutable as $$
declare
  most bigint := (spec ->> 'max_running_instances')::numeric::bigint;
  fewest bigint := coalesce((spec ->> 'min_running_instances')::numeric::bigint, 1);
  instances bigint := case when most is null then 1 when most = -1 then fewest else greatest(most, fewest) end;
begin
  memory_mb := instances
    * coalesce((spec ->> 'memory')::numeric, (spec #>> '{job_resources,ram_mib}')::numeric, 0)::bigint;
  cpu_millicores := instances
    * coalesce((spec ->> 'cpu')::numeric, (spec #>> '{job_resources,cpu_milli}')::numeric, 0)::bigint;
  if jsonb_typeof(spec -> 'storage') = 'array' then
    select count(*), coalesce(sum((item ->> 'size')::numeric::bigint), 0) into volumes, volume_gb
    from jsonb_array_elements(spec -> 'storage') item;
  else
    volumes := case when jsonb_typeof(spec -> 'storage') = 'number' then 1 else 0 end;
    volume_gb := case when volumes = 1 then (spec ->> 'storage')::numeric::bigint else 0 end;
  end if;
end
$$;

-- One row a service, kept by triggers so that no writer of configurations can forget it.
create table service_size (
  service_id uuid primary key references node (id) on delete cascade,
  organization_id uuid not null,
  memory_mb bigint not null,
  cpu_millicores bigint not null,
  volumes integer not null,
  volume_gb bigint not null
);
create index service_size_organization on service_size (organization_id)
  include (memory_mb, cpu_millicores, volumes, volume_gb);

-- The same of what is deployed: a configuration that was made smaller takes effect with its deployment only.
create function size_of_release(workload jsonb, out memory_mb bigint, out cpu_millicores bigint, out volumes integer,
  out volume_gb bigint) language plpgsql immutable as $$
declare
  instances bigint := greatest(1, coalesce((workload ->> 'instances')::numeric::bigint, 1));
begin
  memory_mb := instances * coalesce((workload ->> 'memoryMb')::numeric::bigint, 0);
  cpu_millicores := instances * coalesce((workload ->> 'cpuMillicores')::numeric::bigint, 0);
  select count(*), coalesce(sum((item ->> 'sizeGb')::numeric::bigint), 0) into volumes, volume_gb
  from jsonb_array_elements(
    case jsonb_typeof(workload -> 'volumes') when 'array' then workload -> 'volumes' else '[]' end) item;
end
$$;

-- The larger of both counts.
create function measure_service(service uuid) returns void language plpgsql as $$
begin
  insert into service_size
  select n.id, n.organization_id, greatest(w.memory_mb, d.memory_mb), greatest(w.cpu_millicores, d.cpu_millicores),
    greatest(w.volumes, d.volumes), greatest(w.volume_gb, d.volume_gb)
  from node n cross join size_of_service(n.spec) w left join service_state s on s.service_id = n.id
    left join release r on r.id = s.current_release_id left join size_of_release(r.workload) d on r.id is not null
  where n.id = service
  on conflict (service_id) do update set memory_mb = excluded.memory_mb, cpu_millicores = excluded.cpu_millicores,
    volumes = excluded.volumes, volume_gb = excluded.volume_gb
  where (service_size.memory_mb, service_size.cpu_millicores, service_size.volumes, service_size.volume_gb)
    <> (excluded.memory_mb, excluded.cpu_millicores, excluded.volumes, excluded.volume_gb);
end
$$;

create function measure_configured() returns trigger language plpgsql as $$
begin
  perform measure_service(new.id);
  return null;
end
$$;
create trigger service_made after insert on node
  for each row when (new.name_scope = 'service') execute function measure_configured();
create trigger service_resized after update of spec on node
  for each row when (new.name_scope = 'service' and new.spec <> old.spec) execute function measure_configured();

create function measure_deployed() returns trigger language plpgsql as $$
begin
  perform measure_service(new.service_id);
  return null;
end
$$;
create trigger service_deployed after update of current_release_id on service_state
  for each row when (new.current_release_id is distinct from old.current_release_id)
  execute function measure_deployed();

select measure_service(id) from node where name_scope = 'service';

-- How many deployments of an organization wait.
create index deployment_queued on deployment (organization_id) where state = 'QUEUED';
