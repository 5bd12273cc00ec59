create table if not exists orders (id bigserial primary key, at timestamptz not null default now());
