# The shell functions of the guides: `. docs/guides/prelude.sh` in the checkout, bash or zsh, with curl and Node.
# Elsewhere: curl -fsSO http://<server>:8080/guides/prelude.sh, and set SLIPWAY_URL and SLIPWAY_TOKEN first.

slipway_data=${SLIPWAY_DATA_DIR:-.slipway}
url=${SLIPWAY_URL:-$(cat "$slipway_data/address")}
token=${SLIPWAY_TOKEN:-${SLIPWAY_ADMIN_TOKEN:-$(cat "$slipway_data/admin-token")}}

# Sends a request; a refusal is printed and is a failure.
api() { curl -sS --fail-with-body -H "Authorization: Token $token" -H 'Content-Type: application/json' "$@"; }

# A field of the JSON that it reads: field id, field 'results[0].id'.
field() {
  node -e '
    const read = new Function("answer", `return answer${process.argv[1].startsWith("[") ? "" : "."}${process.argv[1]}`)
    let [answer, value] = []
    try { answer = JSON.parse(require("fs").readFileSync(0, "utf8")); value = read(answer) } catch {}
    if (value === undefined) {
      console.error(answer?.message ?? `The answer has no field ${process.argv[1]}.`)
      process.exit(1)
    }
    console.log(value)' "$1"
}

# Waits until the last deployment of a service is over, at most five minutes: settled application "$application".
settled() {
  for _ in $(seq 300); do
    case $(api "$url/$1/$2/status" | field deployment_state) in
      DEPLOYED | STOPPED | RESTARTED | CANCELED) return 0 ;;
      *ERROR) echo "The deployment of $1 $2 failed: see its environment's log." >&2; return 1 ;;
    esac
    sleep 1
  done
  echo "The deployment of $1 $2 is not over after five minutes." >&2
  return 1
}

# Waits until something that was deleted is gone, at most two minutes: gone "$url/project/$project".
gone() {
  for _ in $(seq 120); do
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Token $token" "$1")" != 404 ] || return 0
    sleep 1
  done
  echo "$1 is still there after two minutes." >&2
  return 1
}

# A project of your own to try things in: playground volumes; deleted again by clean_up.
playground() {
  organization=$(api "$url/organization" | field 'results[0].id') &&
    project=$(api "$url/organization/$organization/project" -d "{\"name\":\"$1 $(date +%s)-$$\"}" | field id) &&
    environment=$(api "$url/project/$project/environment" -d '{"name":"test","mode":"DEVELOPMENT"}' | field id)
}

# Deletes the environments of the playground with all that runs in them, then the project.
clean_up() {
  for each in $(api "$url/project/$project/environment" | field 'results.map(each => each.id).join(" ")'); do
    api -X DELETE "$url/environment/$each" && gone "$url/environment/$each" || return 1
  done
  api -X DELETE "$url/project/$project"
}

# The repository that the guides deploy: this server's own sample, unless you set your own.
repository=${SLIPWAY_REPOSITORY:-$url/samples/hello.git}
