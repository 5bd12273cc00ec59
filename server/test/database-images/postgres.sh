#!/bin/sh
# Entrypoint of the stand-in for postgres: the contract of the usual image, no more. Starts as root, prepares the
# volume, and goes on as postgres.
set -eu

case ${1:-} in '' | -*) set -- postgres "$@" ;; esac
[ "$1" = postgres ] || exec "$@"

if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA" /run/postgresql
  chown -R postgres:postgres "$PGDATA" /run/postgresql
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

initialize() {
  user=${POSTGRES_USER:-postgres}
  method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
  if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
    echo 'Error: Database is uninitialized and superuser password is not specified: set POSTGRES_PASSWORD.' >&2
    exit 1
  fi
  chmod 700 "$PGDATA"
  secret=$(umask 077 && mktemp)
  printf '%s\n' "${POSTGRES_PASSWORD:-}" >"$secret"
  [ -z "${POSTGRES_PASSWORD:-}" ] || set -- "--pwfile=$secret"
  # The words of POSTGRES_INITDB_ARGS are arguments of their own.
  # shellcheck disable=SC2086
  initdb -D "$PGDATA" --username="$user" --auth=trust "$@" ${POSTGRES_INITDB_ARGS:-}
  rm "$secret"
  printf '\nhost all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"
  printf "\nlisten_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
  name=${POSTGRES_DB:-$user}
  [ "$name" = postgres ] ||
    printf 'create database "%s"\n' "$(printf %s "$name" | sed 's/"/""/g')" | postgres --single -D "$PGDATA" postgres
}

# Told to end during the first start, it ends once the data are whole.
trap 'exit 143' INT TERM
[ -s "$PGDATA/PG_VERSION" ] || (initialize)
exec "$@"
