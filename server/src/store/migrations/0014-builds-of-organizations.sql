-- Builds belong to an organization. What was built before has none: nobody finds it again, and a reset still removes it.
-- No reference to the organization: what it left on the engine is to be found after its end.
alter table image add column if not exists organization_id uuid;
create index if not exists image_organization on image (organization_id, image_id);

-- The image that a RUN left. The key is a hash of the organization, the image before it and the command.
create table if not exists build_step (
  step_key text primary key,
  organization_id uuid not null,
  image_id text not null,
  created_at timestamptz not null default clock_timestamp(),
  used_at timestamptz not null default clock_timestamp()
);

-- What the name of a base image meant when the organization last pulled it.
create table if not exists base_image (
  organization_id uuid not null references node (id) on delete cascade,
  name text not null,
  image_id text not null,
  primary key (organization_id, name)
);

-- First in every chain of layers of an organization, so that the engine's cache gives it to nobody else.
create table if not exists build_secret (
  organization_id uuid primary key references node (id) on delete cascade,
  secret text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')
);
