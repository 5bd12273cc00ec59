-- Host names that users bring to their services. Each leads to its service's default public port, as a row of `route`
-- that goes with it.
create table custom_domain (
  id uuid primary key,
  organization_id uuid not null,
  service_id uuid not null references node (id) on delete cascade,
  domain text not null,
  generate_certificate boolean not null,
  use_cdn boolean not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create unique index custom_domain_domain on custom_domain (domain);
create index custom_domain_service on custom_domain (service_id, created_at, id);
alter table route add column custom_domain_id uuid references custom_domain (id) on delete cascade;
create index route_custom_domain on route (custom_domain_id) where custom_domain_id is not null;
