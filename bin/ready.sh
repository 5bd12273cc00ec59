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

# The folders of installs that were interrupted. One whose process lives is another start's.
remove_interrupted_installs() {
  local folder
  for folder in "$root"/.install-*; do
    [ -d "$folder" ] || continue
    kill -0 "${folder##*-}" 2>/dev/null || rm -rf "$folder" || true
  done
}

# Ready to be moved into place: npm, interrupted in node_modules itself, leaves packages that it later takes for whole.
install_modules() {
  local new=$1
  mkdir "$new" "$new/server" "$new/console"
  cp "$root/package.json" "$root/package-lock.json" "$new/"
  cp "$root/server/package.json" "$new/server/"
  cp "$root/console/package.json" "$new/console/"
  [ ! -e "$root/.npmrc" ] || cp "$root/.npmrc" "$new/"
  open_setup_log
  # Not `npm ci`: it refuses a lock that lacks optional packages of platforms which the registry did not serve.
  if ! (cd "$new" && npm install --no-save --no-audit --no-fund >"$setup_log" 2>&1); then
    tail -n 10 "$setup_log" >&2
    fail "npm install failed; the full output is in $setup_log."
  fi
  close_setup_log
  [ -x "$new/node_modules/.bin/node" ] ||
    fail 'npm install skipped the package node: allow its install script (npm config get ignore-scripts) and start again.'
}

# The node_modules of this package-lock.json, whole: the stamp says whose they are, and only a finished install has one.
ready_modules() {
  local stamp=node_modules/.slipway-stamp new=$root/.install-$$ lock
  lock=$(cksum <"$root/package-lock.json")
  if [ -x "$node" ] && [ "$(cat "$root/$stamp" 2>/dev/null)" = "$lock" ]; then return; fi
  has node && has npm || fail 'Slipway needs Node 20 or newer with npm: install it and start again.'
  node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' ||
    fail "Slipway needs Node 20 or newer; this is $(node --version)."
  [ -w "$root" ] || fail "This user may not write to $root: start Slipway as the owner of that folder."
  say 'Installing npm packages ...'
  remove_interrupted_installs
  install_modules "$new"
  printf '%s' "$lock" >"$new/$stamp"
  [ ! -e "$root/node_modules" ] || mv "$root/node_modules" "$new/old"
  local part
  for part in server console; do
    rm -rf "$root/$part/node_modules"
    [ ! -e "$new/$part/node_modules" ] || mv "$new/$part/node_modules" "$root/$part/node_modules"
  done
  mv "$new/node_modules" "$root/node_modules"
  rm -rf "$new"
}

# With a larger young generation from the beginning, the start collects less: 5 % faster for 6 MB. The parser of HTTP in
# WebAssembly gets its best code after some hundred answers of the engine, not during the start (decision 20).
server_flags=(--min-semi-space-size=8 --wasm-tiering-budget=1000000000)

# The words after `node` that start the server: of the bundle of these sources, which is made when it is missing. It is
# named after their content and appears whole, so that what is there can be started; without one the sources run.
ready_server() {
  local folder=$root/node_modules/.cache/slipway key bundle
  server=("$root/server/src/main.ts")
  key=$(cd "$root" && find server/src bin/bundle.ts bin/bundled-main.ts bin/ready.sh package-lock.json -type f ! -name '*.test.ts' -print0 |
    LC_ALL=C sort -z | xargs -0 cksum | cksum | tr ' ' -)
  bundle=$folder/bundle-$key
  if [ ! -e "$bundle/main.cjs" ]; then
    say 'Bundling the server ...'
    if ! "$node" "${server_flags[@]}" "$root/bin/bundle.ts" "$bundle" >&2; then
      say 'The bundle could not be built: the server runs from its sources and uses more memory.'
      return
    fi
  fi
  server=("${server_flags[@]}" "$bundle/main.cjs")
}

# The console that the server serves, built from these sources when it is missing; a release may carry it. Appears whole.
# Without it the server has no web pages, and everything else.
ready_console() {
  local dist=$root/console/dist key
  [ -d "$root/console/src" ] || return 0
  key=$(cd "$root" && find console/src console/build.ts console/schemas.ts console/index.html openapi.json package-lock.json \
    server/src/variables/dotenv.ts server/src/lib/errors.ts server/src/lib/sanitize-text.ts \
    server/src/kinds.ts server/src/resources/terraform/hcl.ts server/src/resources/terraform/provider-fields.ts -type f -print0 |
    LC_ALL=C sort -z | xargs -0 cksum | cksum)
  [ "$(cat "$dist/built-from" 2>/dev/null)" != "$key" ] || return 0
  say 'Building the console ...'
  "$node" "$root/console/build.ts" "$dist" "$key" >&2 || say 'The console could not be built: the API is served without it.'
}

# The types of the console's requests are made from openapi.json, and again when that has changed.
make_client() {
  local types=$root/console/src/api/schema.d.ts
  [ "$types" -nt "$root/openapi.json" ] ||
    "$node" "$root/console/node_modules/openapi-typescript/bin/cli.js" "$root/openapi.json" -o "$types" >/dev/null
}

# Static busybox: the base image of the sample and of tests where no registry can be reached.
ready_busybox() {
  [ -x /bin/busybox ] || ! can_install || install_packages busybox-static
}

# ready_test_program <file> <package> <what is skipped without it>: a program that tests compare or work with. Some packages
# start a service of their own where an init system runs: there it is for the owner of the machine to install them.
ready_test_program() {
  if [ -x "$1" ] || [ -d /run/systemd/system ] || ! can_install; then return; fi
  (install_packages "$2") || say "$3 are skipped."
}

# ready_for_test <word of bin/test-plan.ts>: what test files need. Those that use a program of the last eight are skipped
# without it, and say so.
ready_for_test() {
  case $1 in
    git) ready_git ;;
    docker)
      ready_docker
      ready_busybox
      ;;
    # The server that tests start as a process of its own, as its users do.
    server)
      ready_server
      SLIPWAY_TEST_SERVER=$(printf '%s\n' "${server[@]}")
      export SLIPWAY_TEST_SERVER
      ;;
    docker-registry) ready_test_program /usr/bin/docker-registry docker-registry 'Tests that pull images' ;;
    sshd) ready_test_program /usr/sbin/sshd openssh-server 'Tests of engines behind SSH' ;;
    pebble) ready_test_program /usr/bin/pebble pebble 'Tests of certificates by ACME' ;;
    named) ready_test_program /usr/sbin/named bind9 'Tests of DNS records for certificates' ;;
    nginx) ready_test_program /usr/sbin/nginx nginx-light 'Comparisons of the router with nginx' ;;
    haproxy) ready_test_program /usr/sbin/haproxy haproxy 'Comparisons of the router with HAProxy' ;;
    chromium) ready_test_program /usr/bin/chromium chromium 'Tests of the console in a browser' ;;
    mkfs.xfs) ready_test_program /sbin/mkfs.xfs xfsprogs 'Tests on a disk with quotas' ;;
    *) fail "bin/ready.sh does not know what tests need by the word $1." ;;
  esac
}

# ready_for_tests <files>: all that these need, and nothing else.
ready_for_tests() {
  local words word
  words=$("$node" "$root/bin/test-plan.ts" needs "$@") || exit 1
  for word in $words; do ready_for_test "$word"; done
}

engine_answers() { "$node" "$root/bin/engine-answers.ts" >/dev/null 2>&1; }

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

# ready_to_serve <arguments of the server>: what a server needs, an engine unless it is to be simulated.
ready_to_serve() {
  local fake=
  if is_among --fake "$@"; then fake=yes; else refuse_without_group; fi
  ready_modules
  ready_git
  if [ -z "$fake" ]; then
    ready_docker
    ready_busybox
  fi
}

# Said before anything is installed: a user who has to log in again should not wait for that first.
refuse_without_group() {
  local socket=/var/run/docker.sock
  if [ -n "${DOCKER_HOST:-}${SLIPWAY_DOCKER:-}" ] || [ ! -S "$socket" ] || [ -w "$socket" ]; then return; fi
  ! grep -Eqs '^[[:space:]]*(DOCKER_HOST|SLIPWAY_DOCKER)=' "${SLIPWAY_DATA_DIR:-.slipway}/slipway.env" || return 0
  fail "This user may not use the Docker engine: run \`sudo usermod -aG docker $(id -un)\`, log in again, and start again."
}

# A Docker engine that answers. One that DOCKER_HOST names is never installed or started here.
ready_docker() {
  local named
  named=$("$node" "$root/bin/engine-answers.ts") && return
  [ -z "$named" ] || fail "No Docker engine answers at DOCKER_HOST ($named)."
  refuse_without_group
  if [ "$(id -u)" != 0 ] && [ -S /var/run/docker.sock ]; then
    fail 'The Docker engine does not answer: start it (sudo systemctl start docker) and start again.'
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
