-- The default port of a service has an address of its own too, as its other ports have.
insert into route (host, organization_id, environment_id, service_id, port, protocol, is_default)
select 'p' || port || '-' || host, organization_id, environment_id, service_id, port, protocol, false
from route where is_default and custom_domain_id is null
on conflict (host) do nothing;
