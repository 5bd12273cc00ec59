-- The ids that a configuration names. Who uses a registry, a git token, a group of labels or credentials is asked for
-- in lists, so it must not read every service.
create or replace function node_refs(spec jsonb) returns text[] language sql immutable parallel safe as $$
  select coalesce(array_agg(distinct lower(value #>> '{}')), '{}')
  from jsonb_path_query(spec,
    'strict $.** ? (@.type() == "string" && @ like_regex "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" flag "i")') as value
$$;

create index if not exists node_referring on node using gin (node_refs(spec))
  where name_scope = 'service' or kind = 'cluster';

-- Its work is done by the index above.
drop index if exists node_git_token;
