-- Who did it, by what kind of credential and which one; null in rows from before. Names are for people to read only.
alter table event add column if not exists actor_type text;
alter table event add column if not exists actor_id uuid;

-- What a token made goes with it, in whatever organization it is.
create index if not exists api_token_made_by on api_token (created_by);
-- When the use of a revoked token was last noted in the audit log.
alter table api_token add column if not exists refused_at timestamptz;

-- Sessions that people have ended before their tokens run out.
create table if not exists ended_session (
  hash bytea primary key,
  expires_at timestamptz not null
);
create index if not exists ended_session_end on ended_session (expires_at);
