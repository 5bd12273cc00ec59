# The arguments of the commands: `--help`, `--version`, and a refusal of what a command does not know, before anything is
# installed.

# True when the word is among the arguments after it.
is_among() {
  local word=$1 each
  shift
  for each in "$@"; do [ "$each" != "$word" ] || return 0; done
  return 1
}

usage_of() {
  case $1 in
    main) cat <<'TEXT' ;;
npm start [-- --fake | --version]

Starts Slipway in the foreground. Ctrl-C stops it; what it deployed keeps running.

  --fake      without a Docker engine: deployments are simulated, nothing runs
  --version   prints the version and ends; so does every command

Settings are environment variables, or lines of slipway.env in the data directory (.slipway):
docs/guides/configuration.md lists them.
TEXT
    dev) cat <<'TEXT' ;;
npm run dev [-- --fake --inspect[=PORT]]

Runs the server from its sources, and the console by Vite: each takes up a change when a file is saved.
Ctrl-C ends both, the router and the database. Its data is in .slipway-dev (with --fake in
.slipway-dev-fake) unless SLIPWAY_DATA_DIR names another folder; other settings are those of npm start.
docs/guides/develop.md has the rest.

  --fake      without a Docker engine: deployments are simulated, nothing runs
  --inspect   a debugger may attach to the server, on port 9229 or the one given
TEXT
    fix) cat <<'TEXT' ;;
npm run fix

Mends what a program can of what npm run check finds: format, order of imports, openapi.json,
docs/guides/fields.md, the types of the console's requests.
TEXT
    server) cat <<'TEXT' ;;
bin/server

Prints the arguments of Node that start the server as npm start does.
TEXT
    stop) cat <<'TEXT' ;;
npm stop

Stops Slipway, its router and its database. What it deployed keeps running.
TEXT
    reset) cat <<'TEXT' ;;
npm run reset [-- --yes]

Deletes the data directory and everything that was deployed from it: containers, networks, volumes,
images, keys. Asks before it does.

  --yes    without asking; needed where there is no terminal
TEXT
    doctor) cat <<'TEXT' ;;
npm run doctor [-- --json]

Checks this installation, whether Slipway is running or not, and says how to mend what is wrong:
docs/guides/doctor.md. Changes nothing. Exits with 1 if something failed.

  --json   for programs, without the lines of npm: bin/run doctor --json
TEXT
    backup) cat <<'TEXT' ;;
npm run backup -- --to FOLDER|s3://BUCKET/PREFIX [--recipient=age1... | --no-verify]

Writes one encrypted file with all of Slipway's own data to a folder or bucket, whether Slipway is running or not,
reads it back, and prints its name. Asks for a passphrase, unless SLIPWAY_BACKUP_PASSPHRASE has it. What services
store is not in it: docs/guides/backup.md.

  --to          where it goes; default: SLIPWAY_BACKUP_TO
  --recipient   encrypts for this public key of age instead of a passphrase
  --no-verify   does not read it back
TEXT
    restore) cat <<'TEXT' ;;
npm run restore -- --from FOLDER/NAME|s3://BUCKET/PREFIX/NAME [--identity=FILE] [--check]

Restores a backup of npm run backup into an empty data directory, and into an empty database if
DATABASE_URL is set, and prints what comes back by itself and what does not. Starts nothing. If it is
interrupted, start it again.

  --from       the file of the backup
  --identity   the file with the private key, if it was made for a public key
  --check      only reads the backup and compares all its parts
TEXT
    rotate-keys) cat <<'TEXT' ;;
npm run rotate-keys [-- --keep-master]

Creates a new master key and new data keys and encrypts every secret again, whether Slipway is running
or not. If it is interrupted, start it again.

  --keep-master   uses the first key of the key file, which you have changed on every server
TEXT
    systemd) cat <<'TEXT' ;;
bin/run systemd [--user=NAME] | sudo tee /etc/systemd/system/slipway.service

Prints a systemd unit that starts this checkout at boot: docs/guides/boot-and-upgrade.md.

  --user=NAME   the user that Slipway runs as; default: the owner of this checkout
TEXT
    test) cat <<'TEXT' ;;
npm test [-- FILE ...]

Runs all tests but what is for the night (npm run test:all), or those of the given files. The tests of
containers need a Docker engine.
TEXT
    test-all) cat <<'TEXT' ;;
npm run test:all

Runs everything, for each night: what npm test leaves out, all tests in full and with larger numbers, and
those on a Kubernetes cluster where there is one or one was built. docs/guides/develop.md has the list.
TEXT
    test-kubernetes) cat <<'TEXT' ;;
npm run test:kubernetes [-- FILE ... | --keep | --build | --built]

Runs all tests on a Kubernetes cluster, or those of the given files: on the cluster of KUBECONFIG, or on
one that is built once (half an hour, with Go) and started for the tests (as root).

  --keep    starts that cluster and keeps it until Ctrl-C; prints how to use it
  --build   builds it and ends
  --built   answers by its exit code whether the tests could begin at once
TEXT
    check) cat <<'TEXT' ;;
npm run check

Checks types, lint and format, the house rules and plain words, that a test is named for each field that
acts, and that openapi.json, docs/guides/fields.md and the list of what runs each night are up to date.
TEXT
    screenshots) cat <<'TEXT' ;;
npm run screenshots [-- environment logs dark phone]

Makes pictures of every page and state of the console, or of those named, in console/screenshots: in both
themes and three widths, or in those named (light, dark; wide, middle, phone). A name with a dash at
its end or its beginning stands for all that begin or end so: reader-, -empty, -loading.
TEXT
    bench) cat <<'TEXT' ;;
npm run bench [-- --only 1a,2b] [--rounds 5] [--floors]

Prints each figure next to its theoretical minimum.

  --only     figures by id, separated by commas
  --rounds   how often each figure is measured
  --floors   only the theoretical minimums
TEXT
    faults) cat <<'TEXT' ;;
npm run test:faults [-- F3 F9]

Injects all faults, or those with the given ids. Takes half an hour on an idle machine.
TEXT
  esac
}

# What a command accepts, as patterns of the shell; a command that is not here is checked by its own program.
accepts() {
  case $1:$2 in
    main:--fake | dev:--fake | dev:--inspect | reset:--yes | reset:--fake | rotate-keys:--keep-master | doctor:--json | systemd:--user=?*) return 0 ;;
    backup:--to | backup:--to=?* | backup:--recipient | backup:--recipient=?* | backup:--no-verify | backup:[!-]*) return 0 ;;
    restore:--from | restore:--from=?* | restore:--identity | restore:--identity=?* | restore:--check | restore:[!-]*) return 0 ;;
    dev:--inspect=*) [[ "$2" =~ ^--inspect=[0-9]{1,5}$ ]] ;;
    test:*\** | test:*\?*) return 0 ;;
    test:*) [ -f "$root/$2" ] ;;
    test-kubernetes:--keep | test-kubernetes:--build | test-kubernetes:--built) return 0 ;;
    test-kubernetes:*) [ -f "$root/$2" ] ;;
    faults:F[0-9]* | screenshots:[!-]*) return 0 ;;
    bench:--only | bench:--only=* | bench:--rounds | bench:--rounds=* | bench:--floors | bench:[!-]*) return 0 ;;
    *) return 1 ;;
  esac
}

version() { sed -n 's/^  "version": "\(.*\)",$/\1/p' "$root/package.json"; }

# check_arguments <command> <arguments>: ends the program after `--help` or `--version`, or with code 2 at the first that
# is not known.
check_arguments() {
  local command=$1 each
  shift
  if is_among --help "$@" || is_among -h "$@"; then
    usage_of "$command"
    exit 0
  fi
  if is_among --version "$@"; then
    version
    exit 0
  fi
  for each in "$@"; do
    accepts "$command" "$each" && continue
    if [[ "$command" = @(test|test-kubernetes) && "$each" != -* ]]; then say "There is no test file $each."; else say "$each is not an argument of this command."; fi
    usage_of "$command" >&2
    exit 2
  done
}
