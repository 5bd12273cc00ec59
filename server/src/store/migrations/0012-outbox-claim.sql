-- A claim costs what it takes, not what waits: per receiver, by the time at which a row is due.
create index if not exists outbox_due_of on outbox (webhook_id, next_attempt_at, seq) where state = 'PENDING';
create index if not exists outbox_leased on outbox (webhook_id, lease_until) where state = 'PENDING' and lease_until is not null;
-- The claim was its only reader.
drop index if exists outbox_due;
