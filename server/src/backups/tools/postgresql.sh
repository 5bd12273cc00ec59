# Backups of PostgreSQL, inside its own image: `dump` writes SQL to standard output, `load` replaces the databases of a
# server by what standard input says, `check` does so in a server of its own. Reports on standard error: lines that begin
# with "slipway:". PGHOST, PGUSER and PGPASSWORD name the server.
set -eu
trap '' PIPE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tab=$(printf '\t')
report() { printf 'slipway:%s\n' "$1" >&2; }
export PGCONNECT_TIMEOUT=20 PGOPTIONS='-c statement_timeout=0 -c client_min_messages=warning'

# One statement for each table with rows of its own, except those that belong to extensions.
count_tables="select format('select count(*) || E''\t'' || %L from only %I.%I',
    regexp_replace(format('%I.%I.%I', current_database(), n.nspname, c.relname), '[[:cntrl:]]', '?', 'g'),
    n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname !~ '^(pg_|information_schema\$)'
    and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
  order by n.nspname, c.relname \\gexec"

ask() { psql -XAtqw -v ON_ERROR_STOP=1 "$@"; }

# The databases that users made, and the one that is there from the start.
list_databases() {
  PGDATABASE=template1 ask -c "select datname from pg_database where datallowconn and not datistemplate order by datname"
}

# Rows are counted in the snapshot that the dump has: writes meanwhile are in neither of them.
dump_one() {
  export PGDATABASE="$1"
  rm -f "$work/in" "$work/out"
  mkfifo "$work/in" "$work/out"
  ask <"$work/in" >"$work/out" &
  holder=$!
  exec 3>"$work/in" 4<"$work/out"
  printf '%s\n' 'begin isolation level repeatable read read only;' 'select pg_export_snapshot();' >&3
  IFS= read -r snapshot <&4
  printf '%s\n' "$count_tables" '\echo end' >&3
  ended=
  while IFS= read -r line <&4; do
    if [ "$line" = end ]; then
      ended=yes
      break
    fi
    report "before$tab$line"
  done
  [ -n "$ended" ]
  pg_dump -w --create --snapshot="$snapshot"
  exec 3>&- 4<&-
  wait "$holder"
}

# The password of the role that the service itself uses is never part of a backup.
dump_roles() {
  PGDATABASE=template1 pg_dumpall -w --roles-only >"$work/roles"
  sed -e '/^CREATE ROLE "*postgres"*;$/d' -e '/^ALTER ROLE "*postgres"* WITH /d' \
    -e 's/^CREATE ROLE \(.*\);$/do $role$ begin create role \1; exception when duplicate_object then null; end $role$;/' \
    "$work/roles"
}

dump() {
  list_databases >"$work/databases"
  dump_roles
  while IFS= read -r name; do dump_one "$name"; done <"$work/databases"
}

find_rows() {
  list_databases >"$work/found"
  while IFS= read -r name; do
    printf '%s\n' "$count_tables" | PGDATABASE="$name" ask >"$work/rows"
    while IFS= read -r line; do report "found$tab$line"; done <"$work/rows"
  done <"$work/found"
}

suffix=_slipway_before

on_each() {
  PGDATABASE=template1 ask <<END
select format($1) from pg_database where $2 order by datname \\gexec
END
}
close_all() {
  on_each "'alter database %I with allow_connections false', datname" "$1"
  PGDATABASE=template1 ask -c "select pg_terminate_backend(pid) from pg_stat_activity where datname in (select datname from pg_database where $1)" >"$work/closed"
  on_each "'select 1 from pg_stat_activity where datname = %L', datname" "$1" >"$work/left"
  tries=0
  while [ -s "$work/left" ] && [ "$tries" -lt 50 ]; do
    sleep 0.2
    tries=$((tries + 1))
    on_each "'select 1 from pg_stat_activity where datname = %L', datname" "$1" >"$work/left"
  done
}
kept="right(datname, length('$suffix')) = '$suffix'"
own="not datistemplate and not $kept"

# What an earlier load left that did not get to its end: its new databases go, the old ones come back.
undo() {
  new="not datistemplate and datname || '$suffix' in (select datname from pg_database)"
  close_all "$new"
  on_each "'drop database %I', datname" "$new"
  on_each "'alter database %I rename to %I', datname, left(datname, length(datname) - length('$suffix'))" "$kept"
  on_each "'alter database %I with allow_connections true', datname" "not datistemplate and not datallowconn"
}

# The databases of now are set aside until those of the backup are there.
load() {
  undo
  long=$(PGDATABASE=template1 ask -c "select datname from pg_database where $own and octet_length(datname) > 48 limit 1")
  if [ -n "$long" ]; then
    echo "The name of the database $long is longer than 48 bytes: rename it to restore a backup here." >&2
    exit 1
  fi
  close_all "$own"
  on_each "'alter database %I rename to %I', datname, datname || '$suffix'" "$own"
  if ! PGDATABASE=template1 ask -f - >"$work/printed"; then
    undo
    exit 1
  fi
  on_each "'drop database %I', datname" "$kept"
}

refuse_rows() {
  find_rows 2>"$work/there"
  if [ -s "$work/there" ]; then
    report occupied
    exit 1
  fi
}

start_server() {
  export PGHOST=127.0.0.1
  docker-entrypoint.sh postgres >"$work/server.log" 2>&1 &
  server=$!
  until pg_isready -q -h "$PGHOST" -U "$PGUSER"; do
    kill -0 "$server" 2>/dev/null || {
      tail -n 5 "$work/server.log" >&2
      exit 1
    }
    sleep 0.3
  done
}

# Not joined by "&&", which would ignore errors inside.
case $1 in
  dump) dump ;;
  load)
    load
    find_rows
    ;;
  load-into-empty)
    undo
    refuse_rows
    load
    find_rows
    ;;
  check)
    start_server
    load
    find_rows
    ;;
esac
report done
