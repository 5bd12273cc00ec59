-- A deploy asks which public images its organization has deployed before.
create index if not exists release_public_image
  on release (organization_id, (source ->> 'name'), (source ->> 'tag'), created_at desc)
  where source ->> 'registryId' is null;
