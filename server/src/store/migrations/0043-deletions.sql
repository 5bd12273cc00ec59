-- Set when a deletion of the service ends its part of a deployment that goes on with others.
alter table deployment_service add column end_requested_at timestamptz;

-- The retention of the audit log removes the oldest rows.
create index event_age on event (created_at);
