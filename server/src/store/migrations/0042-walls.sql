-- Hosts that belong to this installation, from its settings. PLATFORM: the API and the console. SERVICES: below which
-- services have their names. OPERATOR: further hosts that the settings trust.
create table reserved_host (
  host text not null,
  use text not null check (use in ('PLATFORM', 'SERVICES', 'OPERATOR')),
  primary key (host, use)
);

-- Whether an organization may not have a host or wildcard: 'platform' if nobody may, 'operator' if only the operator's
-- organization may (the first one), else null. Nobody gets a host of the platform, a wildcard that covers one, or a name
-- where services get theirs. Names above a reserved host, names below the API's and the console's (unless those are a
-- domain itself, such as example.org) and hosts that the settings trust are the operator's.
create function reserved_for(host text, organization uuid) returns text language sql stable as $$
  with asked as (
    select host as name, left(host, 2) = '*.' as is_wildcard,
      case when left(host, 2) = '*.' then substr(host, 3) else host end as base
  ), matched as (
    select r.use, r.host = a.name or a.is_wildcard and substr(r.host, strpos(r.host, '.') + 1) = a.base as is_same,
      a.base = r.host or right(a.base, length(r.host) + 1) = '.' || r.host as is_below,
      right(r.host, length(a.base) + 1) = '.' || a.base as is_above,
      length(r.host) - length(replace(r.host, '.', '')) >= 2 as is_deep
    from reserved_host r, asked a
  ), judged as (
    select max(case
      when m.use <> 'OPERATOR' and m.is_same or m.use = 'SERVICES' and m.is_below then 2
      when m.is_same or m.is_above or m.use = 'PLATFORM' and m.is_below and m.is_deep then 1 else 0 end) as level
    from matched m
  )
  select case when level = 2 then 'platform'
    when level = 1 and organization is distinct from (select id from node where kind = 'organization'
      order by created_at, id limit 1) then 'operator' end
  from judged
$$;

-- Git tokens know the addresses that they may be sent to: the origin of their API, and repositories elsewhere that they
-- are used for. Those at another scheme or port of the API's own host are not among them: anybody with a port of that
-- host could have named one.
create function pg_temp.origin_of(url text) returns text language sql immutable as $$
  select case when m is null then null else lower(m[1]) || '://' ||
    case when lower(m[1]) = 'https' then regexp_replace(lower(m[2]), ':443$', '')
      else regexp_replace(lower(m[2]), ':80$', '') end end
  from (select regexp_match(url, '^(https?)://(?:[^/?#@]*@)?([^/?#@]+)', 'i') as m) found
$$;
create function pg_temp.name_of(origin text) returns text language sql immutable as $$
  select regexp_replace(regexp_replace(origin, '^https?://', ''), ':\d+$', '')
$$;

with token as (
  select t.id, t.organization_id, pg_temp.origin_of(t.spec ->> 'git_api_url') as origin
  from node t where t.kind = 'git_token'
), usual as (
  select *, case origin when 'https://api.github.com' then 'https://github.com'
    when 'https://api.bitbucket.org' then 'https://bitbucket.org' else origin end as own
  from token
), used as (
  select distinct u.id, p ->> 'url' as url
  from node n
    cross join lateral jsonb_path_query(n.spec, 'lax $.** ? (@.git_token_id.type() == "string" && @.url.type() == "string")') p
    join usual u on u.id::text = lower(p ->> 'git_token_id') and u.organization_id = n.organization_id
  where n.name_scope = 'service' and pg_temp.origin_of(p ->> 'url') <> u.own
    and (pg_temp.name_of(pg_temp.origin_of(p ->> 'url')) not in
      (pg_temp.name_of(u.origin), pg_temp.name_of(u.own), regexp_replace(pg_temp.name_of(u.origin), '^api\.', ''))
      or pg_temp.origin_of(p ->> 'url') = replace(u.origin, '://api.', '://'))
)
update node n set spec = n.spec || jsonb_build_object(
  'repository_origins', coalesce(to_jsonb(array_remove(array[u.own], null)), '[]'),
  'repository_urls', coalesce((select jsonb_agg(x.url order by x.url) from used x where x.id = u.id), '[]'))
from usual u where n.id = u.id;

-- Ports are claimed by the first deployment.
delete from outside_port o where not exists (select from release r where r.service_id = o.service_id)
  and exists (select from service_state s where s.service_id = o.service_id and s.state = 'READY'
    and s.current_release_id is null);
