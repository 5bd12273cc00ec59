#!/bin/sh
# Entrypoint of the stand-in for mysql: the contract of the usual image, no more. Starts as root, prepares the volume,
# and goes on as mysql. The server of the first start listens only when its users are there.
set -eu

case ${1:-} in '' | -*) set -- mysqld "$@" ;; esac
[ "$1" = mysqld ] || exec "$@"

data=/var/lib/mysql
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$data" /run/mysqld
  chown -R mysql:mysql "$data" /run/mysqld
  exec setpriv --reuid=mysql --regid=mysql --init-groups "$0" "$@"
fi

# Not echo, which reads backslashes.
say() { printf '%s\n' "$1"; }
text() { printf "'%s'" "$(printf %s "$1" | sed "s/\\\\/&&/g; s/'/''/g")"; }
name() { printf '`%s`' "$(printf %s "$1" | sed 's/`/``/g')"; }

# In a grant the characters _ and % of a database's name are wildcards.
pattern() { name "$(printf %s "$1" | sed 's/[_%]/\\&/g')"; }

first_statements() {
  password=$(text "${MYSQL_ROOT_PASSWORD:-}")
  root="'root'@$(text "${MYSQL_ROOT_HOST:-%}")"
  say 'flush privileges;'
  say "delete from mysql.global_priv where User = '' or (User = 'root' and Host <> 'localhost');"
  say 'flush privileges;'
  say "alter user 'root'@'localhost' identified by $password;"
  say "create or replace user $root identified by $password;"
  say "grant all on *.* to $root with grant option;"
  [ -z "${MYSQL_DATABASE:-}" ] || say "create database if not exists $(name "$MYSQL_DATABASE");"
  if [ -n "${MYSQL_USER:-}" ] && [ -n "${MYSQL_PASSWORD:-}" ]; then
    user="$(text "$MYSQL_USER")@'%'"
    say "create user $user identified by $(text "$MYSQL_PASSWORD");"
    [ -z "${MYSQL_DATABASE:-}" ] || say "grant all on $(pattern "$MYSQL_DATABASE").* to $user;"
  fi
}

initialize() {
  if [ -z "${MYSQL_ROOT_PASSWORD:-}${MYSQL_ALLOW_EMPTY_PASSWORD:-}" ]; then
    echo 'Database is uninitialized and password option is not specified: set MYSQL_ROOT_PASSWORD.' >&2
    exit 1
  fi
  mariadb-install-db --no-defaults --datadir="$data" --skip-test-db --skip-name-resolve \
    --auth-root-authentication-method=normal
  first_statements | mysqld --no-defaults --datadir="$data" --character-set-server=utf8mb4 --bootstrap
}

# Told to end during the first start, it ends once the data are whole.
trap 'exit 143' INT TERM
[ -d "$data/mysql" ] || (initialize)
shift
exec mysqld --datadir="$data" --skip-name-resolve --character-set-server=utf8mb4 "$@"
