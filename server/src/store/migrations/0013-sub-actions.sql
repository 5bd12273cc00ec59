-- What an action is to this kind of service, in the words of the public API: a deploy of a module may only plan.
alter table deployment_service add column if not exists sub_action text not null default 'NONE';
