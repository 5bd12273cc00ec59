#!/usr/bin/env bash
# enter.sh <name> <node.sh and its arguments>: starts node.sh in namespaces and cgroups of its own. Whatever happens to
# the process that started it, the node ends with it: its first process reads our standard input, which ends then, and
# with the first process of a process namespace the kernel ends all others, their mounts and their network.
set -euo pipefail

name=$1
shift
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$name"
  echo $$ >"/sys/fs/cgroup/$name/cgroup.procs"
else
  # Read as a whole: the file changes with each group that this process moves to.
  groups=$(cat /proc/self/cgroup)
  while IFS=: read -r _ controllers _; do
    [ -n "$controllers" ] || continue
    folder=/sys/fs/cgroup/${controllers#name=}
    [ -d "$folder" ] || continue
    mkdir -p "$folder/$name"
    if [ -f "$folder/cpuset.cpus" ]; then
      cat "$folder/cpuset.cpus" >"$folder/$name/cpuset.cpus"
      cat "$folder/cpuset.mems" >"$folder/$name/cpuset.mems"
    fi
    echo $$ >"$folder/$name/cgroup.procs"
  done <<<"$groups"
fi
# For the other end of the node's network.
exec 9</proc/self/ns/net
exec unshare --net --mount --pid --cgroup --fork --kill-child=KILL --mount-proc bash "$@"
