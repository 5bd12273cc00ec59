#!/bin/sh
# Entrypoint of the stand-in for redis: the contract of the usual image, no more. Starts as root, prepares the volume,
# and goes on as redis. Like in the usual image, clients of other machines need no password unless one is set.
set -eu

case ${1:-} in '' | -* | *.conf) set -- redis-server "$@" ;; esac
[ "$1" = redis-server ] || exec "$@"

if [ "$(id -u)" = 0 ]; then
  chown -R redis:redis .
  exec setpriv --reuid=redis --regid=redis --init-groups "$0" "$@"
fi

shift
# The path of a configuration file must stay the first argument.
case ${1:-} in
  '' | -*) set -- --protected-mode no "$@" ;;
  *)
    file=$1
    shift
    set -- "$file" --protected-mode no "$@"
    ;;
esac
exec redis-server "$@"
