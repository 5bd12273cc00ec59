-- Several servers may work on one database. What is looked after on a cluster is one server's at a time: a row for each
-- cluster (its key), under a lease as deployments are.
create table cluster_work (
  id text primary key,
  worker text,
  fence bigint not null default 1,
  lease_until timestamptz not null
);

-- Services that their cluster's holder is putting right at this moment: a deployment waits for those of its environment.
-- One whose fence is not the cluster's any more, or whose cluster has no holder, is nobody's.
create table reconcile_share (
  service_id uuid primary key,
  environment_id uuid not null,
  cluster text not null,
  fence bigint not null
);
create index reconcile_share_environment on reconcile_share (environment_id);

-- The servers on this database, as long as each renews its lease.
create table server (
  id text primary key,
  lease_until timestamptz not null
);

-- What the routers of all servers are told, where there may be several. A service without a row was never routed so.
create table routing (
  service_id uuid primary key references node (id) on delete cascade,
  routes jsonb not null
);
