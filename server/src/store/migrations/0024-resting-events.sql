-- An event that waits long for its next attempt does not hold up the later ones of its service (decision 33).
alter table outbox add column if not exists rests boolean not null default false;
-- It has been tried early once, because its receiver answered again.
alter table outbox add column if not exists recalled boolean not null default false;
drop index if exists outbox_order;
create index if not exists outbox_order on outbox (webhook_id, ordering_key, seq) where state = 'PENDING' and not rests;
create index if not exists outbox_resting on outbox (webhook_id) where state = 'PENDING' and rests and not recalled;
update outbox set rests = true where state = 'PENDING' and next_attempt_at > clock_timestamp() + interval '1 minute';
