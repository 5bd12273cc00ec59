-- A run of a task can be asked for by hand, and keeps its exit code and its output, which is written while it goes on and
-- is deleted with it. Output of runs before has no run: it stays with its deployment.
alter table task_run add column exit_code integer;
alter table task_run add column asked_by text;

alter table deployment_log add column run_id uuid references task_run (id) on delete cascade;
create index deployment_log_run on deployment_log (run_id, id) where run_id is not null;
create index deployment_log_output on deployment_log (service_id, id) where step in ('run', 'task');
