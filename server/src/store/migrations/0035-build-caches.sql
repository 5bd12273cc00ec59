-- Volumes of RUN --mount=type=cache, by their names on the engine of their cluster. No references: what an organization
-- or a cluster left on an engine is to be found after its end.
create table if not exists build_cache (
  volume text primary key,
  organization_id uuid not null,
  cluster_id uuid not null,
  size_kb bigint not null default 0,
  used_at timestamptz not null default clock_timestamp(),
  -- A step that has it for itself, and until when unless it says so again.
  holder uuid,
  held_until timestamptz
);
create index if not exists build_cache_cluster on build_cache (cluster_id);
