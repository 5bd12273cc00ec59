# What the programs in this folder that run tests share: files are run, those of a few that failed once more.

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
status=0
again_at_most=3
unsteady=0
# Words before `node`: what the tests run in.
around=()

# run_files <name> <how many at once> <files>
run_files() {
  local name=$1 at_once=$2
  shift 2
  [ "$#" -gt 0 ] || return 0
  ${around[@]+"${around[@]}"} "$node" --import=./server/test/support/deadline.ts --test --test-concurrency="$at_once" \
    --test-timeout=300000 --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter=./server/test/support/failed-files.ts --test-reporter-destination="$results/$name.told" "$@" ||
    status=1
}

# A few files that failed among all the others run once more, alone: what fails by itself fails again, and what failed
# because the machine was busy is named at the end.
run_failed_again() {
  local failed=() before
  mapfile -t failed < <(cat "$results"/*.told | grep -v '^#' | sort -u)
  [ "${#failed[@]}" -gt 0 ] && [ "${#failed[@]}" -le "$again_at_most" ] || return 0
  before=$(($(count fail) + $(count cancelled)))
  status=0
  sed -i '/^#/!d' "$results"/*.told
  printf '\nOnce more, alone: %s\n' "${failed[*]}"
  run_files again 1 "${failed[@]}"
  [ "$status" = 0 ] || return 0
  unsteady=$before
  printf '\nUNSTEADY: %s failed at first and passed alone; its failure is above.\n' "${failed[@]}"
}

count() { cat "$results"/*.told 2>/dev/null | awk -v word="$1" '$1 == "#" && $2 == word { sum += $3 } END { print sum + 0 }'; }

# Says how many passed, and ends the program.
tell_results() {
  local failures=$(($(count fail) + $(count cancelled) - unsteady))
  [ "$failures" = 0 ] || status=1
  printf '\n%s passed, %s failed, %s skipped\n' "$(count pass)" "$failures" "$(count skipped)"
  exit "$status"
}
