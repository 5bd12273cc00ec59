-- A service may have several tasks beside what stays up, each under a name of its own and by a clock of its own. Those of
-- before are all that their service runs, and are called main.
alter table schedule add column name text not null default 'main';
alter table schedule alter column name drop default;
alter table schedule drop constraint schedule_pkey;
alter table schedule add primary key (service_id, name);

alter table task_run add column name text not null default 'main';
alter table task_run alter column name drop default;
drop index task_run_alone;
create unique index task_run_alone on task_run (service_id, name) where state = 'RUNNING' and alone;

update release set workload = workload - 'task' || jsonb_build_object('tasks', jsonb_build_object('main', workload -> 'task'))
where workload ? 'task';
-- The same in deployments under way, which go on from what their steps have answered.
update deployment_step set result = jsonb_set(result #- '{workload,task}', '{workload,tasks}',
  jsonb_build_object('main', result #> '{workload,task}'))
where name = 'release' and result -> 'workload' ? 'task';
