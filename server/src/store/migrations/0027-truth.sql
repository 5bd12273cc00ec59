-- What is wrong with a service at this moment, for its status: {code, message}, and of what a deployment under way has
-- found the deployment's id. And how an instance of the version that runs ended last, and how often any did.
alter table service_state add column problem jsonb, add column restarts jsonb;

create trigger status_of_problem after update on service_state for each row
  when ((old.problem, old.restarts) is distinct from (new.problem, new.restarts)) execute function tell_status();

-- Versions whose built image was lost: how often it was to be built again, and the last deployment that tried.
create table repair (
  service_id uuid primary key references node (id) on delete cascade,
  release_id uuid not null,
  deployment_id uuid not null,
  attempts integer not null,
  last_at timestamptz not null
);
