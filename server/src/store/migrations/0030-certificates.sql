-- Certificates of host names that the router serves over TLS: one row each, of the service that the host leads to; of no
-- organization for the API's own host. Rows are worked on by one server at a time, under a lease as deployments are.
create table certificate (
  id uuid primary key default gen_random_uuid(),
  host text not null unique,
  organization_id uuid references node (id) on delete cascade,
  service_id uuid references node (id) on delete cascade,
  custom_domain_id uuid references custom_domain (id) on delete cascade,
  -- Why there is no certificate yet, or no newer one: {code, message}; null if nothing is wrong.
  problem jsonb,
  failures integer not null default 0,
  next_at timestamptz not null default '-infinity',
  -- The order under way: its address at the CA, when it began, the sealed key of its certificate, and what the CA is
  -- answered ({kind, token, answer}; anybody may read that).
  order_url text,
  ordered_at timestamptz,
  order_key text,
  challenge jsonb,
  -- The certificate that is served, PEM, and its sealed key.
  chain text,
  chain_key text,
  not_before timestamptz,
  not_after timestamptz,
  worker text,
  fence bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
);
create index certificate_next on certificate (next_at);
create index certificate_organization on certificate (organization_id);
create index certificate_service on certificate (service_id);
create index certificate_custom_domain on certificate (custom_domain_id);

-- Orders of the last days, whatever became of their hosts since: nobody may have a limit of the CA forgotten by removing
-- a domain and adding it again.
create table certificate_order (
  id uuid primary key default gen_random_uuid(),
  host text not null,
  -- Without a reference: it outlives its organization.
  organization_id uuid,
  created_at timestamptz not null,
  -- Until when this host is not ordered again, and how often it has failed in a row by then.
  not_before timestamptz not null,
  failures integer not null default 0
);
create index certificate_order_host on certificate_order (host, created_at desc);
create index certificate_order_organization on certificate_order (organization_id, created_at);
create index certificate_order_age on certificate_order (created_at);

-- Routers follow what is served.
create function tell_certificate() returns trigger language plpgsql as $$
begin
  perform pg_notify('slipway_certificate', coalesce(new.host, old.host));
  return null;
end $$;
create trigger certificate_served after update on certificate for each row
  when ((old.chain, old.challenge) is distinct from (new.chain, new.challenge)) execute function tell_certificate();
create trigger certificate_gone after delete on certificate for each row execute function tell_certificate();

-- Hosts that are new or gone.
create function tell_hosts() returns trigger language plpgsql as $$
begin
  perform pg_notify('slipway_hosts', '');
  return null;
end $$;
create trigger route_hosts after insert or delete or update of host on route for each statement
  execute function tell_hosts();
create trigger custom_domain_hosts after update of generate_certificate on custom_domain for each statement
  execute function tell_hosts();
