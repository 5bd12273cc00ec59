# Backups of MySQL and MariaDB, inside their own image: `dump` writes SQL to standard output, `load` replaces the
# databases of a server by what standard input says, `check` does so in a server of its own. Reports on standard error:
# lines that begin with "slipway:". BACKUP_HOST, BACKUP_USER and BACKUP_PASSWORD name the server.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tab=$(printf '\t')
report() { printf 'slipway:%s\n' "$1" >&2; }

quoted() { printf '"%s"' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')"; }

# Other users of the machine can read command lines.
point_at() {
  (umask 077 && printf '[client]\nhost=%s\nuser=%s\npassword=%s\n[mysql]\nconnect-timeout=20\n' \
    "$(quoted "$1")" "$(quoted "$BACKUP_USER")" "$(quoted "$BACKUP_PASSWORD")" >"$work/client.cnf")
}
ask() { mysql --defaults-extra-file="$work/client.cnf" --protocol=tcp -N -B --raw "$@"; }

own="schema_name not in ('mysql', 'information_schema', 'performance_schema', 'sys')"

count_rows() {
  ask -e "select concat('select count(*), ', quote(concat(table_schema, '.', table_name)), ' from \`',
      replace(table_schema, '\`', '\`\`'), '\`.\`', replace(table_name, '\`', '\`\`'), '\`;')
    from information_schema.tables where table_type = 'BASE TABLE'
      and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys')
    order by table_schema, table_name" >"$work/counts.sql"
  ask <"$work/counts.sql" >"$work/rows"
  while IFS= read -r line; do report "$1$tab$line"; done <"$work/rows"
}

# One transaction for all tables of InnoDB. Rows are counted before and after: what is written meanwhile is between.
dump() {
  count_rows before
  ask -e "select schema_name from information_schema.schemata where $own order by schema_name" >"$work/databases"
  set --
  while IFS= read -r name; do set -- "$@" "$name"; done <"$work/databases"
  # Only MySQL has this option.
  gtid=$(mysqldump --help | sed -n 's/^ *--set-gtid-purged.*/--set-gtid-purged=OFF/p' | head -n 1)
  # shellcheck disable=SC2086
  [ $# -eq 0 ] || mysqldump --defaults-extra-file="$work/client.cnf" --protocol=tcp $gtid --single-transaction \
    --quick --routines --triggers --events --hex-blob --no-tablespaces \
    --default-character-set=utf8mb4 --databases "$@"
  count_rows after
}

# Users and their passwords are those of the server that it is loaded into.
load() {
  ask -e "select concat('drop database \`', replace(schema_name, '\`', '\`\`'), '\`;')
    from information_schema.schemata where $own" >"$work/drop.sql"
  ask <"$work/drop.sql"
  ask --binary-mode --default-character-set=utf8mb4 --max-allowed-packet=1G
}

refuse_rows() {
  count_rows found 2>"$work/there"
  if [ -s "$work/there" ]; then
    report occupied
    exit 1
  fi
}

start_server() {
  point_at 127.0.0.1
  docker-entrypoint.sh mysqld >"$work/server.log" 2>&1 &
  server=$!
  until ask -e 'select 1' >"$work/answer" 2>&1; do
    kill -0 "$server" 2>/dev/null || {
      tail -n 5 "$work/server.log" >&2
      exit 1
    }
    sleep 0.5
  done
}

point_at "$BACKUP_HOST"
case $1 in
  dump) dump ;;
  load)
    load
    count_rows found
    ;;
  load-into-empty)
    refuse_rows
    load
    count_rows found
    ;;
  check)
    start_server
    load
    count_rows found
    ;;
esac
report done
