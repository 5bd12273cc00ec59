-- Services whose number of instances follows their use. Of the version that is deployed: how it scales (its workload's
-- `scaling`), how many instances of it are to run now (0: it sleeps) and since when, and why it could not be woken last.
-- All null for a service that does not scale.
alter table service_state add column scaling jsonb, add column scale integer, add column scaled_at timestamptz,
  add column wake_error jsonb;

create trigger status_of_scale after update on service_state for each row
  when ((old.scaling, old.scale) is distinct from (new.scaling, new.scale)) execute function tell_status();

-- Services whose number of instances their cluster's holder is changing at this moment. A deployment that is about to
-- touch the instances of one says so (`converging`), and waits until it is not there any more. One whose fence is not the
-- cluster's, or whose cluster has no holder, is nobody's.
create table scale_work (
  service_id uuid primary key,
  cluster text not null,
  fence bigint not null
);

-- From here on the deployment alone says what runs of the service, until its part has ended.
alter table deployment_service add column converging boolean not null default false;

create index service_state_scaling on service_state (cluster_id) where scaling is not null;

-- What is deployed counts with all the instances that it may have.
create or replace function size_of_release(workload jsonb, out memory_mb bigint, out cpu_millicores bigint,
  out volumes integer, out volume_gb bigint) language plpgsql immutable as $$
declare
  instances bigint := greatest(1, coalesce((workload ->> 'instances')::numeric::bigint, 1),
    coalesce((workload #>> '{scaling,max}')::numeric::bigint, 1));
begin
  memory_mb := instances * coalesce((workload ->> 'memoryMb')::numeric::bigint, 0);
  cpu_millicores := instances * coalesce((workload ->> 'cpuMillicores')::numeric::bigint, 0);
  select count(*), coalesce(sum((item ->> 'sizeGb')::numeric::bigint), 0) into volumes, volume_gb
  from jsonb_array_elements(
    case jsonb_typeof(workload -> 'volumes') when 'array' then workload -> 'volumes' else '[]' end) item;
end
$$;

-- A service with a minimum of 0 and no upper bound has one instance when it is awake.
create or replace function size_of_service(spec jsonb, out memory_mb bigint, out cpu_millicores bigint, out volumes integer,
  out volume_gb bigint) language plpgsql immutable as $$
declare
  most bigint := (spec ->> 'max_running_instances')::numeric::bigint;
  fewest bigint := coalesce((spec ->> 'min_running_instances')::numeric::bigint, 1);
  instances bigint := case when most is null then 1 when most = -1 then greatest(fewest, 1) else greatest(most, fewest) end;
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

select measure_service(id) from node where name_scope = 'service' and spec ->> 'max_running_instances' = '-1';
