# Backups of Redis, inside its own image: `dump` writes its own format (RDB) to standard output, `load` replaces the data
# of a server by what standard input says, `check` starts a server of its own with it. Reports on standard error: lines
# that begin with "slipway:". BACKUP_HOST names the server, REDISCLI_AUTH its password.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tab=$(printf '\t')
report() { printf 'slipway:%s\n' "$1" >&2; }

target() { redis-cli -h "$BACKUP_HOST" "$@"; }
own() { redis-cli -p 6380 "$@"; }

# Keys that expire are left out: there are fewer each time that one counts.
count_keys() {
  kind=$1
  shift
  "$@" info keyspace >"$work/keyspace"
  if ! grep -q '^# Keyspace' "$work/keyspace"; then
    cat "$work/keyspace" >&2
    exit 1
  fi
  tr -d '\r' <"$work/keyspace" | sed -n 's/^\(db[0-9]*\):keys=\([0-9]*\),expires=\([0-9]*\).*/\1 \2 \3/p' >"$work/keys"
  while read -r name keys expires; do
    [ "$keys" -eq "$expires" ] || report "$kind$tab$((keys - expires))$tab$name"
  done <"$work/keys"
}

dump() {
  count_keys before target
  redis-cli -h "$BACKUP_HOST" --rdb - 2>"$work/said" || {
    cat "$work/said" >&2
    exit 1
  }
  count_keys after target
}

start_own() {
  cd "$work"
  cat >dump.rdb
  if [ "$(head -c 5 dump.rdb)" != REDIS ]; then
    echo 'The backup does not begin as a file of Redis does.' >&2
    exit 1
  fi
  chmod 755 "$work"
  chmod 644 dump.rdb
  printf 'port 6380\nprotected-mode no\nappendonly no\nsave ""\ndir %s\nrequirepass %s\n' "$work" "$REDISCLI_AUTH" \
    >own.conf
  redis-server own.conf >server.log 2>&1 &
  server=$!
  until [ "$(own ping 2>/dev/null)" = PONG ]; do
    kill -0 "$server" 2>/dev/null || {
      tail -n 5 server.log >&2
      exit 1
    }
    sleep 0.2
  done
}

# Each answer must be OK: the client succeeds also with an error as an answer.
demand() {
  target >"$work/answers"
  if [ ! -s "$work/answers" ] || grep -qv '^OK' "$work/answers"; then
    grep -v '^OK' "$work/answers" >&2
    exit 1
  fi
}

field() { target info replication | tr -d '\r' | sed -n "s/^$1://p"; }

# The server copies our own one, which replaces its data in one step.
load() {
  address=$(hostname -i)
  trap 'printf "replicaof no one\nconfig set masterauth \"\"\n" | target >"$work/undone" || true; rm -rf "$work"' EXIT
  printf 'config set masterauth %s\nreplicaof %s 6380\n' "$REDISCLI_AUTH" "${address%% *}" | demand
  until [ "$(field master_link_status)" = up ] && [ "$(field master_sync_in_progress)" = 0 ]; do
    kill -0 "$server" 2>/dev/null || {
      tail -n 5 server.log >&2
      exit 1
    }
    sleep 0.2
  done
  printf 'replicaof no one\nconfig set masterauth ""\n' | demand
}

refuse_keys() {
  target info keyspace >"$work/there"
  if grep -q '^db' "$work/there"; then
    report occupied
    exit 1
  fi
}

# An earlier load that was ended in the middle leaves a server that waits for it.
let_go() { printf 'replicaof no one\n' | demand; }

case $1 in
  dump) dump ;;
  load)
    let_go
    start_own
    load
    count_keys found target
    ;;
  load-into-empty)
    let_go
    refuse_keys
    start_own
    load
    count_keys found target
    ;;
  check)
    start_own
    count_keys found own
    ;;
esac
report done
