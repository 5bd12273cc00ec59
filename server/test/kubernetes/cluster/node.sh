#!/usr/bin/env bash
# node.sh <folder> <name of the link> <address here> <address of the node>: the first process of the node. It ends when
# its standard input does, which are lines of words between tabs: `start <name> <program and its arguments>` and
# `signal <name> <signal>`. It says `ready`, and which program ended.
set -euo pipefail

folder=$1
link=$2
outside=$3
inside=$4

# What a node writes outside its folder stays with it. /tmp is where the volumes of the class `standard` are.
private_folders() {
  mount --make-rslave /
  mount -t tmpfs node /run
  mkdir -p "$folder/tmp"
  mount -t tmpfs node /var/log
  mkdir /var/log/pods /var/log/containers
  mount --bind "$folder/tmp" /tmp
  mount --make-rshared /
}

# A kubelet sets these for the whole machine, unless it finds what it wants.
private_settings() {
  local each path value
  for each in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    path=${each%=*} value=${each#*=}
    mkdir -p "$folder/sys/${path%/*}"
    echo "$value" >"$folder/sys/$path"
    mount --bind "$folder/sys/$path" "/proc/sys/$path"
  done
}

# The cgroups of this namespace: its top is ours alone.
private_cgroups() {
  local controllers path
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup /sys/fs/cgroup
    mkdir /sys/fs/cgroup/init
    echo 1 >/sys/fs/cgroup/init/cgroup.procs
    sed 's/\(\w\+\)/+\1/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
    return
  fi
  path=$(mktemp)
  grep -v '::' /proc/self/cgroup >"$path"
  umount -R /sys/fs/cgroup
  mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    mkdir "/sys/fs/cgroup/${controllers#name=}"
    case $controllers in
      name=*) mount -t cgroup -o "none,$controllers" cgroup "/sys/fs/cgroup/${controllers#name=}" ;;
      *) mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers" ;;
    esac
  done <"$path"
  rm -f "$path"
}

network() {
  ip link set lo up
  ip link add eth0 type veth peer name "$link" netns /proc/self/fd/9
  nsenter --net=/proc/self/fd/9 ip address add "$outside/30" dev "$link"
  nsenter --net=/proc/self/fd/9 ip link set "$link" up
  exec 9<&-
  ip address add "$inside/30" dev eth0
  ip link set eth0 up
  ip route add default via "$outside"
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# run <name> <program and its arguments>
run() {
  local name=$1
  shift
  "$@" >"$folder/log/$name.log" 2>&1 </dev/null &
  echo $! >"$folder/pids/$name"
  wait $! || true
  echo "$name ended"
}

private_folders
private_settings
private_cgroups
network
echo ready

while IFS=$'\t' read -r -a line; do
  case ${line[0]} in
    start) run "${line[@]:1}" & ;;
    signal) kill "-${line[2]}" "$(cat "$folder/pids/${line[1]}")" ;;
  esac
done
