-- What waits or runs is asked for at every request and every status; without this, the whole history is read for it.
create index if not exists deployment_open on deployment (environment_id, seq) where state in ('QUEUED', 'RUNNING');
