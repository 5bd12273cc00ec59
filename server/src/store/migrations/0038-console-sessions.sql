-- Sessions of the web console. Of both halves of what opens one only hashes are kept: the cookie's and the page's.
create table if not exists console_session (
  hash bytea primary key,
  key_hash bytea not null,
  -- The API token that was signed in with; null for a person, whose verified claims are kept instead.
  token_hash bytea references api_token (hash) on delete cascade,
  claims jsonb,
  jwt_hash bytea,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  check ((token_hash is null) = (claims is not null))
);
create index if not exists console_session_token on console_session (token_hash, created_at);
create index if not exists console_session_end on console_session (expires_at);

-- Links that sign in once.
create table if not exists console_code (
  hash bytea primary key,
  token_hash bytea not null references api_token (hash) on delete cascade,
  expires_at timestamptz not null
);
