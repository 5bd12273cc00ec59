-- Environments that run only in their hours (deployment rule with auto_stop): when that changes next, and the services
-- that were stopped for it, which are started again.
create table environment_hours (
  environment_id uuid primary key references node (id) on delete cascade,
  next_at timestamptz not null default '-infinity',
  stopped uuid[] not null default '{}'
);
create index environment_hours_next on environment_hours (next_at);

create function note_environment_hours() returns trigger language plpgsql as $$
begin
  if new.spec #>> '{deployment_rule,auto_stop}' = 'true' then
    insert into environment_hours (environment_id) values (new.id)
      on conflict (environment_id) do update set next_at = '-infinity';
  else
    delete from environment_hours where environment_id = new.id;
  end if;
  perform pg_notify('slipway_hours', '');
  return null;
end $$;

create trigger environment_hours_made after insert on node for each row
  when (new.kind = 'environment' and new.spec #>> '{deployment_rule,auto_stop}' = 'true')
  execute function note_environment_hours();
create trigger environment_hours_changed after update of spec on node for each row
  when (new.kind = 'environment' and old.spec -> 'deployment_rule' is distinct from new.spec -> 'deployment_rule')
  execute function note_environment_hours();

insert into environment_hours (environment_id)
  select id from node where kind = 'environment' and spec #>> '{deployment_rule,auto_stop}' = 'true';
