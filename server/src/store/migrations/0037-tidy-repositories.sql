-- When somebody last began to merge the packs of a repository into one. Whoever dies meanwhile is followed by another.
alter table git_repository add column if not exists tidied_at timestamptz not null default '-infinity';
