-- TXT records that may have been set at the DNS provider for challenges: one that no order needs is removed there, and
-- then here.
create table dns_record (
  id uuid primary key default gen_random_uuid(),
  name text not null,
  value text not null,
  created_at timestamptz not null default clock_timestamp(),
  next_at timestamptz not null default '-infinity',
  unique (name, value)
);
