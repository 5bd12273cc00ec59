# What the programs in this folder share: each function makes one thing ready, or says in one sentence what is missing
# and ends the program. Quick when all is there; prints one line for each thing that it installs.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
node=$root/node_modules/.bin/node
setup_log=

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# A file of its own for what an installer says: under a name that can be guessed anybody could have put a link.
open_setup_log() { [ -n "$setup_log" ] || setup_log=$(mktemp "${TMPDIR:-/tmp}/slipway-setup.XXXXXXXX"); }

close_setup_log() {
  rm -f "$setup_log"
  setup_log=
}

has() { command -v "$1" >/dev/null 2>&1; }

can_install() { [ "$(id -u)" = 0 ] && has apt-get; }

# Installs Debian packages. Package lists may be absent or old: a second try fetches them.
install_packages() {
  say "Installing $* ..."
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@")
  open_setup_log
  if "${install[@]}" >"$setup_log" 2>&1 || { apt-get update -q && "${install[@]}"; } >"$setup_log" 2>&1; then
    close_setup_log
    return
  fi
  tail -n 5 "$setup_log" >&2
  fail "The packages $* cannot be installed; the full output is in $setup_log."
}

ready_git() {
  has git && return
  can_install || fail 'Slipway needs git: install it and start again.'
  install_packages git ca-certificates
}

# The node_modules of this package-lock.json. The stamp tells whose they are.
ready_modules() {
  local stamp=$root/node_modules/.slipway-stamp lock
  lock=$(cksum <"$root/package-lock.json")
  if [ -x "$node" ]; then
    [ "$(cat "$stamp" 2>/dev/null)" = "$lock" ] && return
    if [ ! -e "$stamp" ] && [ "$root/node_modules/.package-lock.json" -nt "$root/package-lock.json" ]; then
      printf '%s' "$lock" >"$stamp"
      return
    fi
  fi
  has node && has npm || fail 'Slipway needs Node 20 or newer with npm: install it and start again.'
  node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' ||
    fail "Slipway needs Node 20 or newer; this is $(node --version)."
  say 'Installing npm packages ...'
  open_setup_log
  # Not `npm ci`: it refuses a lock that lacks optional packages of platforms which the registry did not serve.
  if ! (cd "$root" && npm install --no-save --no-audit --no-fund >"$setup_log" 2>&1); then
    tail -n 10 "$setup_log" >&2
    fail "npm install failed; the full output is in $setup_log."
  fi
  close_setup_log
  [ -x "$node" ] || fail 'npm install skipped the package node: allow its install script (npm config get ignore-scripts) and start again.'
  printf '%s' "$lock" >"$stamp"
}

# The words after `node` that start the server: of the bundle of these sources, which is made when it is missing. It is
# named after their content and appears whole, so that what is there can be started; without one the sources run.
ready_server() {
  local folder=$root/node_modules/.cache/slipway key bundle
  server=("$root/server/src/main.ts")
  key=$(cd "$root" && find server/src bin/bundle.ts package-lock.json -type f ! -name '*.test.ts' -print0 |
    LC_ALL=C sort -z | xargs -0 cksum | cksum | tr ' ' -)
  bundle=$folder/bundle-$key
  if [ ! -e "$bundle/main.mjs" ]; then
    say 'Bundling the server ...'
    if ! "$node" "$root/bin/bundle.ts" "$bundle" >&2; then
      say 'The bundle could not be built: the server runs from its sources and uses more memory.'
      return
    fi
  fi
  server=("$bundle/main.mjs")
}

# Static busybox: the base image of the sample and of tests where no registry can be reached.
ready_busybox() {
  [ -x /bin/busybox ] || ! can_install || install_packages busybox-static
}

# A registry for the tests that pull images; without it they are skipped, and say so. The package starts a registry of
# its own where an init system runs: there it is for the owner of the machine to install.
ready_docker_registry() {
  if [ -x /usr/bin/docker-registry ] || [ -d /run/systemd/system ] || ! can_install; then return; fi
  (install_packages docker-registry) || say 'Tests that pull images are skipped.'
}

engine_answers() { "$node" "$root/bin/engine-answers.ts" 2>/dev/null; }

wait_for_engine() {
  local deadline=$((SECONDS + $1))
  until engine_answers; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.2
  done
}

dockerd_runs() {
  local pid
  pid=$(cat /var/run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

start_engine() {
  local log=/var/log/slipway-dockerd.log
  if [ -d /run/systemd/system ]; then
    systemctl start docker >/dev/null 2>&1 || true
  elif ! dockerd_runs; then
    # The number in the file of a killed engine may by now be another process's.
    rm -f /var/run/docker.pid
    say "Starting the Docker engine (its log is $log) ..."
    setsid dockerd >>"$log" 2>&1 </dev/null &
  fi
  wait_for_engine 30 && return
  tail -n 5 "$log" >&2 2>/dev/null || true
  fail 'The Docker engine does not answer: start it (dockerd) and try again, or run npm start -- --fake.'
}

# A Docker engine that answers. One that DOCKER_HOST names is never installed or started here.
ready_docker() {
  engine_answers && return
  [ -z "${DOCKER_HOST:-}" ] || fail "No Docker engine answers at DOCKER_HOST ($DOCKER_HOST)."
  if [ "$(id -u)" != 0 ] && [ -S /var/run/docker.sock ]; then
    fail 'The Docker engine is stopped or refuses this user: start it and add the user to the group docker.'
  fi
  if ! has dockerd; then
    can_install || fail 'Slipway needs a Docker engine: install and start it, or run npm start -- --fake.'
    local packages=(docker.io ca-certificates)
    [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" != Y ] || packages+=(apparmor)
    [ -x /bin/busybox ] || packages+=(busybox-static)
    install_packages "${packages[@]}"
  fi
  [ "$(id -u)" = 0 ] || fail 'The Docker engine does not answer: start it, or run npm start -- --fake.'
  start_engine
}

# True when the word is among the arguments after it.
is_among() {
  local word=$1 each
  shift
  for each in "$@"; do [ "$each" != "$word" ] || return 0; done
  return 1
}
