/**
 * The network of one build: its own bridge, and in it a holder container, whose network the steps share. Only the
 * holder has NET_ADMIN: before any step runs it blackholes the routes to networks that a build must not reach, and no
 * step can undo that. This works on any engine. If it fails, the build fails.
 */
import { readFile } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { blockedRoutes, type Network, type Pool, parseNetwork, usualPools, widen } from './blocked-routes.ts'
import type { BuildLeftovers } from './build-containers.ts'
import { readOutput } from './container-output.ts'

export interface BuildNetworkParts {
  engine: Engine
  isLocal: boolean
  /** An address of the engine's machine, if that is another one: services are published there. */
  elsewhere?: string | undefined
  /** The id of an image with busybox, for the holder. */
  holderImage(signal: AbortSignal): Promise<string>
  allowed: readonly string[]
  /** A DNS resolver instead of the machine's. */
  dns: string | undefined
}

export interface BuildNetwork {
  /** Starts to create it, if not yet done. */
  begin(): void
  /** `NetworkMode` of a step, once the network is safe. */
  mode(): Promise<string>
  /** Returns when nothing more of it will be created. */
  settled(): Promise<void>
}

interface EngineNetwork {
  Driver: string
  IPAM: { Config: { Subnet?: string; Gateway?: string }[] | null }
}

const isNetwork = (network: Network | null): network is Network => network !== null

const parseAll = (texts: readonly (string | undefined)[]): Network[] =>
  texts.map((text) => parseNetwork(text ?? '')).filter(isNetwork)

const subnetsOf = ({ IPAM }: EngineNetwork) => parseAll((IPAM.Config ?? []).map(({ Subnet }) => Subnet))

const readPools = async (engine: Engine, signal: AbortSignal): Promise<readonly Pool[]> => {
  const info = await engine.call<{ DefaultAddressPools?: { Base: string; Size: number }[] | null }>('GET', '/info', {
    signal,
  })
  const set = (info.DefaultAddressPools ?? []).flatMap(({ Base, Size }) => {
    const pool = parseNetwork(Base)
    return pool === null ? [] : [{ pool, bits: Size }]
  })
  return set.length === 0 ? usualPools : set
}

const readResolvers = async (): Promise<Network[]> => {
  const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => '')
  return parseAll(text.split('\n').map((line) => /^nameserver\s+(\S+)/.exec(line)?.[1]))
}

const linkLocal = parseNetwork('169.254.0.0/16')!
const isLinkLocal = (address: Network): boolean => widen(address, 16).base === linkLocal.base

const ownNetworks = () => {
  const found = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  const four = found.filter(({ family, internal }) => family === 'IPv4' && !internal)
  return {
    addresses: parseAll(four.map(({ address }) => address)),
    around: parseAll(four.map(({ cidr }) => cidr ?? '')),
  }
}

const look = async ({ engine, isLocal, elsewhere, allowed }: BuildNetworkParts, name: string, signal: AbortSignal) => {
  const [networks, pools, resolvers, own] = await Promise.all([
    engine.call<(EngineNetwork & { Name: string })[]>('GET', '/networks', {
      signal,
      keep: [{ Name: true, Driver: true, IPAM: { Config: [{ Subnet: true, Gateway: true }] } }],
    }),
    readPools(engine, signal),
    isLocal ? readResolvers() : [],
    isLocal ? ownNetworks() : { addresses: parseAll([elsewhere]), around: [] },
  ])
  const bridges = networks.filter(({ Driver, Name }) => Driver === 'bridge' && Name !== name)
  const mine = networks.find(({ Name }) => Name === name)
  const [subnet] = mine === undefined ? [] : subnetsOf(mine)
  const gateway = parseNetwork(mine?.IPAM.Config?.[0]?.Gateway?.split('/')[0] ?? '')
  if (subnet === undefined || gateway === null) throw new Error('the build network has no subnet')
  const taken = bridges.flatMap(subnetsOf)
  const isEngines = (each: Network) => [...taken, subnet].some(({ base, bits }) => widen(each, bits).base === base)
  const routes = blockedRoutes({
    own: subnet,
    gateway,
    pools,
    networks: taken,
    addresses: own.addresses,
    neighbours: own.around.filter((each) => !isEngines(each)),
    allowed: [...resolvers.filter((each) => !isLinkLocal(each)), ...parseAll(allowed)],
  })
  return { routes, isDeaf: resolvers.length > 0 && resolvers.every(isLinkLocal) }
}

const ready = 'slipway: closed'
const script = `six=/proc/sys/net/ipv6/conf/eth0/disable_ipv6
[ ! -e $six ] || [ "$(cat $six)" = 1 ] || { echo IPv6 is on; exit 1; }
for route in "$@"; do ip route add blackhole "$route" || exit 1; done; echo "${ready}"; exec sleep 1000000`
const deaf =
  'The DNS resolver of this machine is a link-local address, which builds cannot reach: set SLIPWAY_BUILD_DNS to another resolver, or builds cannot resolve names.\n'

const failed = (why: string, cause?: unknown): DeploymentError =>
  new DeploymentError('build_failed', `The build failed: its network could not be isolated: ${why}.`, { cause })

export const createBuildNetwork = (
  parts: BuildNetworkParts,
  made: BuildLeftovers,
  onText: (text: string) => void,
  signal: AbortSignal,
): BuildNetwork => {
  const { engine, dns } = parts

  const hold = async (network: string, routes: string[]): Promise<string> => {
    const name = made.name('container')
    const HostConfig = {
      NetworkMode: network,
      CapDrop: ['ALL'],
      CapAdd: ['NET_ADMIN'],
      SecurityOpt: ['no-new-privileges'],
      ReadonlyRootfs: true,
      PidsLimit: 16,
      Memory: 64 * 2 ** 20,
      LogConfig: { Type: 'none' },
      Dns: dns === undefined ? undefined : [dns],
    }
    const Entrypoint = ['/bin/sh', '-c', script, 'sh', ...routes]
    const body = { Image: await parts.holderImage(signal), User: '0', Entrypoint, Cmd: [], HostConfig }
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    signal.throwIfAborted()
    let told = ''
    for await (const text of readOutput(engine, Id, signal)) {
      told = (told + text).slice(-1000)
      if (told.includes(ready)) return Id
    }
    throw failed(told.trim().slice(-200) || 'the container of the network exited')
  }

  const make = async (): Promise<string> => {
    const name = made.name('network')
    // Without IPv6, whatever the engine's default, so that the blocked routes are complete.
    const body = { Name: name, Driver: 'bridge', EnableIPv6: false, CheckDuplicate: true }
    try {
      // Not aborted by the signal: the engine would continue, and create it after it was removed.
      await engine.call('POST', '/networks/create', { body })
      const { routes, isDeaf } = await look(parts, name, signal)
      if (isDeaf && dns === undefined) onText(deaf)
      return `container:${await hold(name, routes)}`
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof DeploymentError) throw error
      throw failed((error as Error).message.slice(0, 200), error)
    }
  }

  let making: Promise<string> | null = null
  const mode = (): Promise<string> => {
    making ??= make()
    return making
  }
  const settled = async (): Promise<void> => {
    await making?.catch(() => {})
  }
  return { begin: () => void mode().catch(() => {}), mode, settled }
}
