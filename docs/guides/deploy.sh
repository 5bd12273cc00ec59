#!/bin/sh
# deploy.sh APPLICATION [COMMIT]: deploys it, waits at most 15 minutes, and fails if it does not run then.
# Needs curl, and SLIPWAY_URL and SLIPWAY_TOKEN (with the scope Deploy) in the environment.
set -eu
application=${1:?which application: its id}
commit=${2:-}
address=${SLIPWAY_URL:?the address of the server}/application/$application

ask() { curl -sS --fail-with-body --retry 5 -H "Authorization: Token ${SLIPWAY_TOKEN:?}" -H 'Content-Type: application/json' "$@"; }

state() { ask "$address/status" | sed -n 's/.*"deployment_state":"\([A-Z_]*\)".*/\1/p'; }

ask -o /dev/null -X POST "$address/deploy" -d "{${commit:+\"git_commit_id\":\"$commit\"}}"
seconds=0
while [ "$seconds" -lt 900 ]; do
  now=$(state)
  case $now in
    DEPLOYED) echo "Deployed ${commit:-the head of the branch}."; exit 0 ;;
    *ERROR | CANCELED) echo "The deployment ended as $now: the log of its environment says why." >&2; exit 1 ;;
  esac
  sleep 2
  seconds=$((seconds + 2))
done
echo 'The deployment is not over after 15 minutes.' >&2
exit 1
