-- Ports of this machine that services are reached at without a host name: held from when a configuration asks for one
-- until neither that nor the deployed version has it.
create table if not exists outside_port (
  protocol text not null check (protocol in ('TCP', 'UDP')),
  port integer not null check (port between 1 and 65535),
  service_id uuid not null references node (id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  primary key (protocol, port)
);
create index if not exists outside_port_service on outside_port (service_id);

-- Each draw has a number of its own, so that two at once do not find the same port free. Two servers on one machine
-- begin at different places.
create sequence if not exists outside_port_draw;
select setval('outside_port_draw', 1 + floor(random() * 1000000)::bigint);

-- What is spoken behind a host name.
alter table route add column if not exists protocol text not null default 'HTTP';
update route r set protocol = 'GRPC' from node n
where n.id = r.service_id and exists (
  select from jsonb_array_elements(case when jsonb_typeof(n.spec -> 'ports') = 'array' then n.spec -> 'ports' else '[]' end) p
  where p -> 'internal_port' = to_jsonb(r.port) and p ->> 'protocol' = 'GRPC'
);
