-- What a service takes of its organization's limits, told by its configuration: memory and processor of all the
-- instances that it may have, and its volumes. What has no instances (jobs, modules) runs once at a time. Without an
-- upper bound (-1) it gets the instances that it asks for.
create function size_of_service(spec jsonb, out memory_mb bigint, out cpu_millicores bigint, out volumes integer,
  out volume_gb bigint) language plpgsql immutable as $$
declare
  most bigint := (spec ->> 'max_running_instances')::bigint;
  least_ bigint := coalesce((spec ->> 'min_running_instances')::bigint, 1);
  instances bigint := case when most is null then 1 when most = -1 then least_ else greatest(most, least_) end;
begin
  memory_mb := instances * coalesce((spec ->> 'memory')::bigint, (spec #>> '{job_resources,ram_mib}')::bigint, 0);
  cpu_millicores := instances * coalesce((spec ->> 'cpu')::bigint, (spec #>> '{job_resources,cpu_milli}')::bigint, 0);
  if jsonb_typeof(spec -> 'storage') = 'array' then
    select count(*), coalesce(sum((item ->> 'size')::bigint), 0) into volumes, volume_gb
    from jsonb_array_elements(spec -> 'storage') item;
  else
    volumes := case when jsonb_typeof(spec -> 'storage') = 'number' then 1 else 0 end;
    volume_gb := case when volumes = 1 then (spec ->> 'storage')::bigint else 0 end;
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

create function keep_service_size() returns trigger language plpgsql as $$
begin
  insert into service_size select new.id, new.organization_id, size.* from size_of_service(new.spec) size
  on conflict (service_id) do update set memory_mb = excluded.memory_mb, cpu_millicores = excluded.cpu_millicores,
    volumes = excluded.volumes, volume_gb = excluded.volume_gb
  where (service_size.memory_mb, service_size.cpu_millicores, service_size.volumes, service_size.volume_gb)
    <> (excluded.memory_mb, excluded.cpu_millicores, excluded.volumes, excluded.volume_gb);
  return null;
end
$$;
create trigger service_made after insert on node
  for each row when (new.name_scope = 'service') execute function keep_service_size();
create trigger service_resized after update of spec on node
  for each row when (new.name_scope = 'service' and new.spec <> old.spec) execute function keep_service_size();

insert into service_size select n.id, n.organization_id, size.* from node n, size_of_service(n.spec) size
where n.name_scope = 'service';

-- How many deployments of an organization wait.
create index deployment_queued on deployment (organization_id) where state = 'QUEUED';
