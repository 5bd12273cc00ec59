-- What the last run of a service left for its neighbours: in the open, or sealed where it is a secret.
create table if not exists service_output (
  id uuid primary key,
  organization_id uuid not null,
  service_id uuid not null references node (id) on delete cascade,
  name text not null,
  value text,
  sealed text,
  created_at timestamptz not null default clock_timestamp(),
  unique (service_id, name),
  check ((value is null) <> (sealed is null))
);

-- What the services of the environment see changes with it.
create or replace function forget_wanted_hash_of_output() returns trigger language plpgsql as $$
begin
  update service_state set wanted_hash = null, wanted_version = wanted_version + 1
  where environment_id = (select parent_id from node
    where id = (case when tg_op = 'DELETE' then old.service_id else new.service_id end));
  return null;
end
$$;
create or replace trigger output_changed after insert or update or delete on service_output
  for each row execute function forget_wanted_hash_of_output();

-- What the runs of a service (its id) hand on from one to the next, sealed; and who has it now. `begun` is the try whose
-- program has started since: from then on only its container knows the truth.
create table if not exists task_state (
  id uuid primary key references node (id) on delete cascade,
  organization_id uuid not null,
  serial bigint not null default 0,
  sealed text,
  release_id uuid,
  held_by uuid,
  locked_at timestamptz,
  begun integer,
  updated_at timestamptz not null default clock_timestamp()
);

-- What a service's last deployment was asked to run instead of the usual.
alter table service_state add column if not exists forced_event text;

-- Whether a run by the clock may begin while the last one goes on. Of those that may not, one is open at a time.
alter table schedule add column if not exists overlap text not null default 'Forbid'
  check (overlap in ('Forbid', 'Allow', 'Replace'));
alter table task_run add column if not exists alone boolean not null default true;
drop index if exists task_run_open;
create unique index if not exists task_run_alone on task_run (service_id) where state = 'RUNNING' and alone;
create index if not exists task_run_open on task_run (service_id) where state = 'RUNNING';
