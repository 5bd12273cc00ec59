-- Whether the engine of a cluster limits the sizes of volumes, as it last said.
alter table cluster_capacity add column limits_volumes boolean not null default false;
