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

-- Certificates that users brought for their domains, by the id of the domain: they go before those that are ordered. `host` is the domain for which
-- each was checked. PEM; the key is sealed.
create table uploaded_certificate (
  id uuid primary key references custom_domain (id) on delete cascade,
  organization_id uuid not null references node (id) on delete cascade,
  host text not null,
  chain text not null,
  chain_key text not null,
  not_before timestamptz not null,
  not_after timestamptz not null,
  created_at timestamptz not null default clock_timestamp()
);
create index uploaded_certificate_organization on uploaded_certificate (organization_id);
create index uploaded_certificate_host on uploaded_certificate (host);
create trigger certificate_uploaded after insert or update or delete on uploaded_certificate for each row
  execute function tell_certificate();

-- Grows whenever a registry has told of a push, so that none is missed while the image is being asked for.
alter table watched_image add column asked bigint not null default 0;
