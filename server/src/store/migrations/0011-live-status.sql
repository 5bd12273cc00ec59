-- Whoever shows a status hears of every change of it at its commit, whoever made the change: one notice a transaction
-- and environment, its payload the environment's id.
create function tell_status() returns trigger language plpgsql as $$
begin
  perform pg_notify('slipway_status',
    (case when tg_op = 'DELETE' then old.environment_id else new.environment_id end)::text);
  return null;
end
$$;

create trigger status_made after insert or delete on service_state for each row execute function tell_status();

-- A fingerprint that becomes known is no change: reading a status computes it.
create trigger status_changed after update on service_state for each row
  when ((old.state, old.action, old.action_status, old.running_state, old.deployment_id, old.execution_id,
      old.current_release_id, old.deployed_hash, old.last_deployment_at, old.stage_id)
    is distinct from (new.state, new.action, new.action_status, new.running_state, new.deployment_id, new.execution_id,
      new.current_release_id, new.deployed_hash, new.last_deployment_at, new.stage_id)
    or (old.wanted_hash is not null and new.wanted_hash is null and new.current_release_id is not null))
  execute function tell_status();

create trigger status_of_new_deployment after insert on deployment for each row execute function tell_status();

create trigger status_of_deployment after update on deployment for each row
  when (old.state is distinct from new.state) execute function tell_status();

create trigger status_of_stages after insert or update or delete on deployment_stage
  for each row execute function tell_status();
