-- A cancel that does not wait for the grace period of what runs.
alter table deployment add column cancel_force boolean not null default false;

-- Groups of labels and annotations are part of what a deployment uses: a change of one is a change of all that refer to it.
create function forget_wanted_hash_of_group() returns trigger language plpgsql as $$
begin
  update service_state set wanted_hash = null, wanted_version = wanted_version + 1
  where service_id in (select u.id from node u where u.organization_id = new.organization_id
    and node_refs(u.spec) @> array[new.id::text] and (u.name_scope = 'service' or u.kind = 'cluster'));
  return null;
end
$$;
create trigger group_changed after update of spec on node
  for each row when (new.kind in ('labels_group', 'annotations_group'))
  execute function forget_wanted_hash_of_group();
