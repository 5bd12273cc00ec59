-- A token has scopes, or the rights of a role. The operator's own token sees every organization of the installation.
alter table api_token add column if not exists role_id uuid;
alter table api_token add column if not exists is_operator boolean not null default false;
update api_token set is_operator = true
  where created_by is null and scopes = '{Admin}' and name in ('first start', 'SLIPWAY_ADMIN_TOKEN');
-- Whose tokens go when a member goes.
create index if not exists api_token_maker on api_token (organization_id, created_by) where revoked_at is null;

-- Somebody that an OIDC issuer vouches for; made at first sight.
create table if not exists account (
  id uuid primary key,
  issuer text not null,
  subject text not null,
  email text,
  -- The issuer says that the address is really theirs: only then it opens an invitation.
  email_verified boolean not null default false,
  name text,
  nickname text,
  first_name text,
  last_name text,
  picture text,
  communication_email text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  last_activity_at timestamptz not null default clock_timestamp()
);
create unique index if not exists account_subject on account (issuer, subject);

-- One role a member. Built-in roles have fixed ids, custom ones are rows of the tree.
create table if not exists member (
  organization_id uuid not null references node (id) on delete cascade,
  account_id uuid not null references account (id) on delete cascade,
  role_id uuid not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (organization_id, account_id)
);
create index if not exists member_account on member (account_id, created_at);
-- Two transfers at once must not make two owners.
create unique index if not exists member_owner on member (organization_id)
  where role_id = '00000000-0000-4000-8000-000000000001';

create table if not exists invitation (
  id uuid primary key,
  organization_id uuid not null references node (id) on delete cascade,
  email text not null,
  role_id uuid not null,
  inviter text not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
);
create unique index if not exists invitation_email on invitation (organization_id, lower(email));

-- Filters of the audit log.
create index if not exists event_target on event (organization_id, target_id, created_at desc);
