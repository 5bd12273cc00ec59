-- The engine of a cluster that is a Docker engine, as it said when the cluster was made or its credentials changed, and
-- later. An engine is one cluster's: two organizations never share one, and what one cluster sweeps is no other's.
create table cluster_engine (
  cluster_id uuid primary key references node (id) on delete cascade,
  engine_id text not null unique,
  version text not null,
  read_at timestamptz not null default clock_timestamp()
);

-- Every server connects to what is added, connects anew to what changed, and lets go of what is deleted.
create function tell_cluster() returns trigger language plpgsql as $$
begin
  perform pg_notify('slipway_cluster', '');
  return null;
end
$$;
create trigger cluster_written after insert or update of spec, sealed on node for each row
  when (new.kind in ('cluster', 'onpremise_credentials')) execute function tell_cluster();
create trigger cluster_deleted after delete on node for each row
  when (old.kind = 'cluster') execute function tell_cluster();
