-- What holds data is removed from engines and clusters only by a deletion that is recorded here, never because a row is
-- missing. The record is written by triggers, in the transaction that removes the row: no writer can forget it, and a
-- cascade counts too. It stays after the removal is confirmed (`done_at`), for whatever shows up again later.
create table deletion (
  id uuid primary key,
  -- As of its row: a kind of service, environment or cluster; or ORPHAN for what a person had removed.
  kind text not null,
  -- Null for a cluster.
  environment_id uuid,
  -- The key of its cluster: 'local' or the id of the cluster's row.
  cluster text not null,
  organization_id uuid,
  name text,
  -- The deployment that deleted it, if one did.
  deployment_id uuid,
  deleted_at timestamptz not null default clock_timestamp(),
  done_at timestamptz
);
create index deletion_pending on deletion (cluster) where done_at is null;

create function record_deletion() returns trigger language plpgsql as $$
declare
  environment uuid;
  place text;
begin
  if old.kind = 'cluster' then
    place := case when coalesce((old.spec ->> 'is_default')::boolean, false) then 'local' else old.id::text end;
  else
    environment := case when old.kind = 'environment' then old.id else old.parent_id end;
    select case when coalesce((c.spec ->> 'is_default')::boolean, false) then 'local' else c.id::text end into place
      from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster' where e.id = environment;
    -- In a cascade its environment or its cluster may be gone already: their own records say where it was.
    if place is null then
      select cluster into place from deletion
        where id = environment or id = (old.spec ->> 'cluster_id')::uuid limit 1;
    end if;
  end if;
  insert into deletion (id, kind, environment_id, cluster, organization_id, name, deployment_id)
    values (old.id, old.kind, environment, coalesce(place, 'local'), old.organization_id, old.name,
      nullif(current_setting('slipway.deployment', true), '')::uuid)
    on conflict (id) do update set done_at = null, deleted_at = excluded.deleted_at;
  return old;
end
$$;
create trigger deletion_recorded before delete on node for each row
  when (old.name_scope = 'service' or old.kind in ('environment', 'cluster')) execute function record_deletion();

-- What an engine or cluster has with our labels, that no row stands for and no record says to remove; VERSION: of a
-- service that is known, a version that was never deployed by this database.
create table orphan (
  cluster text not null,
  -- Of the service, or of the environment for what is the environment's own.
  id uuid not null,
  kind text not null check (kind in ('SERVICE', 'ENVIRONMENT', 'VERSION')),
  environment_id uuid not null,
  -- As its labels say.
  organization_id uuid,
  -- {instances: [{name, state}], volumes: [{id, size_gb}], created_at}
  found jsonb not null,
  first_seen timestamptz not null default clock_timestamp(),
  ignored_at timestamptz,
  primary key (cluster, id)
);

-- The generations of this database on each engine and cluster, which has a mark of the newest one. A mark that is not
-- here was made by another line of the database: this one is older, or a copy.
create table cluster_generation (
  cluster text not null,
  generation bigint not null,
  nonce text not null,
  -- Whose: the same over restarts of a control plane.
  writer text not null,
  -- How many deployments had been requested when it was written.
  deployments bigint not null,
  written_at timestamptz not null default clock_timestamp(),
  primary key (cluster, generation)
);

-- Clusters on which nothing is changed until an operator chooses.
create table cluster_conflict (
  cluster text primary key,
  code text not null,
  -- For people: what was found.
  message text not null,
  since timestamptz not null default clock_timestamp()
);
