# What the programs in this folder that run tests share: files are run, those of a few that failed once more.

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
status=0
again_at_most=3
unsteady=0
# Words before `node`: what the tests run in.
around=()
# What V8 makes of the sources is kept for the next test process.
export NODE_COMPILE_CACHE=$root/node_modules/.cache/slipway-tests

# run_files <name> <one | many> <files>
run_files() {
  [ "$#" -gt 2 ] || return 0
  ${around[@]+"${around[@]}"} "$node" "$root/bin/test-files.ts" "$results" "$@" || status=1
}

# A few files that failed among all the others run once more, alone: what fails by itself fails again, and what failed
# because the machine was busy is named at the end.
run_failed_again() {
  local failed=() before
  mapfile -t failed < <(cat "$results"/*.failed | sort -u)
  [ "${#failed[@]}" -gt 0 ] && [ "${#failed[@]}" -le "$again_at_most" ] || return 0
  before=$(($(count fail) + $(count cancelled)))
  status=0
  printf '\nOnce more, alone: %s\n' "${failed[*]}"
  run_files again one "${failed[@]}"
  [ "$status" = 0 ] || return 0
  unsteady=$before
  printf '\nUNSTEADY: %s failed at first and passed alone; its failure is above.\n' "${failed[@]}"
}

count() { cat "$results"/*.counts 2>/dev/null | awk -v word="$1" '$1 == word { sum += $2 } END { print sum + 0 }'; }

slowest() {
  printf '\nThe slowest files, in seconds:\n'
  sort -rn "$results"/*.times | head -n 20 | awk -F '\t' '{ printf "%7.1f  %s\n", $1 / 1000, $2 }'
}

# Says how many passed, and ends the program.
report_results() {
  local failures=$(($(count fail) + $(count cancelled) - unsteady))
  [ "$failures" = 0 ] || status=1
  slowest
  printf '\n%s passed, %s failed, %s skipped\n' "$(count pass)" "$failures" "$(count skipped)"
  exit "$status"
}
