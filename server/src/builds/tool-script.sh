#!/bin/sh
# Runs OpenTofu or Terraform on a module, as a task of the control plane. What a user wrote comes as arguments, as the
# environment or as files, never as part of this text.
#   slipway-module plan|apply|destroy|migrate TOOL FOLDER BACKEND [FILE OF VARIABLES…]
# In:  /slipway-input/state.json (a large one in parts, state.json.parts/000 …), variables.tfvars.json, arguments.init|plan|apply|destroy (one argument a line)
# Out: /slipway-output/state.json, slipway-output.json
set -u
verb=$1 tool=$2 folder=$3 backend=$4
shift 4
in=/slipway-input
out=/slipway-output
state=$out/state.json
export TF_IN_AUTOMATION=1 TF_INPUT=0 CHECKPOINT_DISABLE=1
umask 077

say() { echo "slipway: $*"; }
fail() { say "$*" >&2; exit 1; }

# The tool ends in its own way when it gets the signal; whatever it does then is waited for. Not INT: what a shell runs
# beside itself is deaf to that.
child=
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' INT TERM
stopped=
attempt() {
  [ -z "$stopped" ] || exit 130
  "$@" &
  child=$!
  wait "$child"; code=$?
  while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
  child=
  return "$code"
}
run() { attempt "$@" || exit $?; }

# run_with NAME WORD…: the tool with these words and the user's own arguments of that name.
run_with() {
  name=$1
  shift
  if [ -f "$in/arguments.$name" ]; then
    while IFS= read -r word; do set -- "$@" "$word"; done < "$in/arguments.$name"
  fi
  [ -z "${last-}" ] || set -- "$@" "$last"
  run "$tool" "$@"
}

# Who may not write beside the module works on a copy of it.
module=/module
if [ ! -w "$module" ]; then
  module=/tmp/slipway-module
  cp -R /module "$module" || fail 'no room for a copy of the module'
fi

cd "$module/$folder" 2>/dev/null || fail "the repository has no folder $folder"
found=
for file in ./*.tf ./*.tf.json ./*.tofu; do [ ! -f "$file" ] || found=1; done
[ -n "$found" ] || fail "the folder $folder holds no module"

# Ours is there before the tool is, and complete: what stands there at any instant is a whole state.
take_state() { cat "$@" > "$out/state.new" && mv "$out/state.new" "$state" || fail 'no room for the state'; }
if [ -d "$in/state.json.parts" ]; then take_state "$in/state.json.parts"/*
elif [ -f "$in/state.json" ]; then take_state "$in/state.json"; fi

keep_here() {
  printf 'terraform {\n  backend "local" {\n    path = "%s"\n  }\n}\n' "$state" > slipway_override.tf
}

# A backend of the module's own has to outlive this container.
refuse_forgetful() {
  own=.terraform/terraform.tfstate
  [ -f "$own" ] || fail 'the module names no backend: what it makes would be forgotten'
  ! grep -q '"type": *"local"' "$own" || fail 'the module has a local backend: its file would go with this container'
}

"$tool" version 2>/dev/null | head -n 1

case $verb/$backend in
migrate/here)
  run_with init init -input=false -no-color
  keep_here
  run "$tool" init -input=false -no-color -migrate-state -force-copy
  exit 0 ;;
migrate/elsewhere)
  keep_here
  run "$tool" init -input=false -no-color
  rm slipway_override.tf
  run_with init init -input=false -no-color -migrate-state -force-copy
  refuse_forgetful
  exit 0 ;;
*/here) keep_here ;;
esac
run_with init init -input=false -no-color
[ "$backend" = here ] || refuse_forgetful

# Files of variables stand in the module's folder, or are named from the top of the repository.
count=$#
while [ "$count" -gt 0 ]; do
  file=$1
  shift
  count=$((count - 1))
  [ -f "$file" ] || file=$module/$file
  [ -f "$file" ] || fail "the repository has no file of variables ${file#"$module"/}"
  set -- "$@" "-var-file=$file"
done
[ ! -f "$in/variables.tfvars.json" ] || set -- "$@" "-var-file=$in/variables.tfvars.json"

case $verb in
plan) run_with plan plan -input=false -no-color "$@" ;;
destroy) run_with destroy destroy -auto-approve -input=false -no-color "$@" ;;
apply)
  run_with plan plan -input=false -no-color -out=/tmp/slipway.plan "$@"
  last=/tmp/slipway.plan
  run_with apply apply -input=false -no-color
  last=
  "$tool" output -json -no-color > "$out/output.new" || fail 'the outputs cannot be read'
  mv "$out/output.new" "$out/slipway-output.json" ;;
*) fail "$verb is not known" ;;
esac
