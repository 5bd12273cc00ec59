/**
 * Limits of the kernel that a machine with many services reaches. Each is named with the reason why it matters here:
 * others are left alone.
 */
import { failed, type Problem, topic, warning } from '../lib/finding.ts'
import { countOpenFiles, openFilesLimitIn, readNumbers, readProc } from './proc.ts'

export interface Ports {
  first: number
  last: number
}

/** Null: the system does not say. */
export interface KernelFacts {
  openFiles: { used: number; limit: number } | null
  threads: { used: number; most: number } | null
  /** Instances and watches that the programs of one user may have. */
  inotify: { instances: number; watches: number } | null
  /** Ports that the kernel gives to outgoing connections. */
  outgoing: Ports | null
  /** `vm.overcommit_memory`. */
  overcommit: number | null
  conntrack: { used: number; most: number } | null
}

const pair = (first: number | undefined, second: number | undefined): [number, number] | null =>
  first === undefined || second === undefined ? null : [first, second]

/** `0.50 0.40 0.30 2/840 12345`: 840 threads. */
const threadsIn = (loadavg: string): number | undefined => {
  const found = /\d\/(\d+) /.exec(loadavg)
  return found === null ? undefined : Number(found[1])
}

export const readKernel = async (): Promise<KernelFacts> => {
  const sysctl = (name: string) => readNumbers(`sys/${name}`)
  const [[pids], [threads], [instances], [watches], outgoing, [overcommit], [tracked], [mostTracked]] =
    await Promise.all([
      sysctl('kernel/pid_max'),
      sysctl('kernel/threads-max'),
      sysctl('fs/inotify/max_user_instances'),
      sysctl('fs/inotify/max_user_watches'),
      sysctl('net/ipv4/ip_local_port_range'),
      sysctl('vm/overcommit_memory'),
      sysctl('net/netfilter/nf_conntrack_count'),
      sysctl('net/netfilter/nf_conntrack_max'),
    ])
  const files = pair(
    (await countOpenFiles()) ?? undefined,
    openFilesLimitIn(await readProc('self/limits')) ?? undefined,
  )
  const running = pair(threadsIn(await readProc('loadavg')), Math.min(pids ?? Infinity, threads ?? Infinity))
  const inotify = pair(instances, watches)
  const ports = pair(outgoing[0], outgoing[1])
  const conntrack = pair(tracked, mostTracked)
  return {
    openFiles: files && { used: files[0], limit: files[1] },
    threads: running && { used: running[0], most: running[1] },
    inotify: inotify && { instances: inotify[0], watches: inotify[1] },
    outgoing: ports && { first: ports[0], last: ports[1] },
    overcommit: overcommit ?? null,
    conntrack: conntrack && { used: conntrack[0], most: conntrack[1] },
  }
}

const kernel = topic('kernel', 'Kernel limits')
const nearShare = 0.8
const fewFiles = 4096
const fewInstances = 128
const fewWatches = 8192
const fewPorts = 10_000
/** The kernel lets no program allocate more than there is memory and swap for. */
const strictOvercommit = 2

const fileProblem = ({ openFiles }: KernelFacts): Problem | null => {
  if (openFiles === null) return null
  const { used, limit } = openFiles
  const advice = 'Raise the limit: `LimitNOFILE=1048576` in the systemd unit, or `ulimit -n` before the start.'
  if (used > limit * nearShare)
    return failed(`This process has ${used} of ${limit} files open: connections and builds fail at the limit.`, advice)
  return limit < fewFiles
    ? warning(`This process may have only ${limit} files open: each connection and each live log takes one.`, advice)
    : null
}

const threadProblem = ({ threads }: KernelFacts): Problem | null =>
  threads !== null && threads.used > threads.most * nearShare
    ? failed(
        `${threads.used} of ${threads.most} threads exist on this machine: at the limit no container starts.`,
        'Raise `kernel.pid_max` and `kernel.threads-max`, or find the program that makes so many (`ps -eLf`).',
      )
    : null

const inotifyProblem = ({ inotify }: KernelFacts): Problem | null =>
  inotify !== null && (inotify.instances < fewInstances || inotify.watches < fewWatches)
    ? warning(
        `One user may have ${inotify.instances} inotify instances and ${inotify.watches} watches: services that watch files fail when all containers of that user have used them up.`,
        'Set `fs.inotify.max_user_instances=1024` and `fs.inotify.max_user_watches=524288` in /etc/sysctl.d.',
      )
    : null

const portsProblem = ({ outgoing }: KernelFacts, range: Ports): Problem | null => {
  if (outgoing === null) return null
  const { first, last } = outgoing
  if (first <= range.last && range.first <= last)
    return warning(
      `Outgoing connections take ports from ${first} to ${last}, which has ports of SLIPWAY_PORT_RANGE (${range.first}-${range.last}): a service may find its port in use.`,
      'Choose another SLIPWAY_PORT_RANGE, or move `net.ipv4.ip_local_port_range`.',
    )
  return last - first + 1 < fewPorts
    ? warning(
        `Only ${last - first + 1} ports exist for outgoing connections, of which the router needs one for each connection to a service.`,
        'Widen `net.ipv4.ip_local_port_range`, such as `32768 60999`.',
      )
    : null
}

const overcommitProblem = ({ overcommit }: KernelFacts): Problem | null =>
  overcommit === strictOvercommit
    ? warning(
        'The setting `vm.overcommit_memory` is 2: programs that reserve much memory and use little of it, such as Node, the JVM and Redis while it saves, fail to start.',
        'Set `vm.overcommit_memory=0`, or 1 for Redis.',
      )
    : null

const conntrackProblem = ({ conntrack }: KernelFacts): Problem | null =>
  conntrack !== null && conntrack.used > conntrack.most * nearShare
    ? failed(
        `The kernel tracks ${conntrack.used} of ${conntrack.most} connections: at the limit it drops new ones.`,
        'Raise `net.netfilter.nf_conntrack_max`.',
      )
    : null

export const judgeKernel = (facts: KernelFacts, range: Ports) => {
  if (Object.values(facts).every((each) => each === null)) return kernel.skipped('This system does not report them.')
  const problems = [
    fileProblem(facts),
    threadProblem(facts),
    inotifyProblem(facts),
    portsProblem(facts, range),
    overcommitProblem(facts),
    conntrackProblem(facts),
  ]
  return kernel.judge(
    problems.filter((each) => each !== null),
    'Open files, threads, inotify, ports of outgoing connections and overcommit leave enough room.',
  )
}
