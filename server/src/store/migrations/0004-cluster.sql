-- Which variables refer to an access to a secret manager: its own list, and whether a cluster may give it up.
alter table variable add column if not exists secret_manager_access_id uuid;
create index if not exists variable_secret_manager_access on variable (secret_manager_access_id)
  where secret_manager_access_id is not null;
