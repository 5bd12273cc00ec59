/**
 * Databases in MANAGED mode: the fields that a module of the operator can read, the outputs it may have, and the
 * variables that the other services get from them. Pure, except for the provider of an environment's cluster.
 */
import { isIP } from 'node:net'
import {
  type DatabaseModule,
  databaseModuleOf,
  instanceTypeText,
  noDatabaseModule,
} from '../../clusters/database-modules.ts'
import { readsField } from '../../clusters/modules.ts'
import type { DeployableKind, Output, Source, WorkloadSpec } from '../../deployments/deployments.ts'
import { moduleGraceMs } from '../../deployments/tasks/module-tool.ts'
import { moduleTask } from '../../deployments/tasks/modules.ts'
import { DeploymentError, invalidField } from '../../lib/errors.ts'
import { classify, parseAddress } from '../../lib/net/address-policy.ts'
import type { Queryable } from '../../store/database.ts'
import { databaseTypes, isEligible, isOlder } from './database-types.ts'

/** The fields of the configuration that a module can read. */
const readable = ['version', 'accessibility', 'instance_type', 'disk_type', 'storage', 'cpu', 'memory'] as const

type ManagedFields = Readonly<Partial<Record<(typeof readable)[number], unknown>>>

type ModuleSource = Extract<Source, { from: 'module' }>

/** `cloud_provider` of the cluster of an environment. */
export const readProvider = async (db: Queryable, environmentId: string): Promise<string> => {
  const [row] = await db.query<{ provider: string | null }>(
    `select c.spec ->> 'cloud_provider' as provider from node e
       join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster' where e.id = $1`,
    [environmentId],
  )
  return row?.provider ?? ''
}

/** The module for such a database. Throws a 400 if there is none. */
export const demandModule = (
  modules: Parameters<typeof databaseModuleOf>[0],
  provider: string,
  type: string,
): DatabaseModule => {
  const module = databaseModuleOf(modules, provider, type)
  if (module === null) throw invalidField('/mode', noDatabaseModule(provider, type))
  return module
}

/** Versions that a module makes, the oldest first. */
export const moduleVersions = ({ versions }: DatabaseModule, type: string): readonly string[] =>
  versions.length > 0 ? versions : databaseTypes[type]!.versions

/** Throws a 400 for a database that the operator's module does not make. */
export const checkManaged = (
  module: DatabaseModule,
  { type, version, instance_type: size }: { type: string; version: string; instance_type?: unknown },
  previous: string | undefined,
): void => {
  const versions = moduleVersions(module, type)
  const isListed = module.versions.length > 0 ? versions.includes(version) : isEligible(type, version)
  if (version !== previous && !isListed) throw invalidField('/version', `must be one of ${versions.join(', ')}`)
  if (previous !== undefined && isOlder(version, previous))
    throw invalidField('/version', 'must not be older than the current version, which may have changed the files')
  if (typeof size !== 'string') return
  const { instanceTypes } = module
  if (instanceTypes.length > 0 ? !instanceTypes.includes(size) : !instanceTypeText.test(size))
    throw invalidField(
      '/instance_type',
      instanceTypes.length > 0
        ? `must be one of ${instanceTypes.join(', ')}`
        : 'must be letters, digits, dots, dashes and underscores',
    )
}

/** The fields of a request that the module does not get. */
export const unreadFields = (module: DatabaseModule, sent: object): string[] =>
  readable.filter((field) => (sent as ManagedFields)[field] != null && readsField(module, `/${field}`) === 'nothing')

export const managedSource = ({ provider, type, ...kept }: { provider: string; type: string }): ModuleSource => ({
  from: 'module',
  provider,
  type,
  fields: Object.fromEntries(
    readable.flatMap((field) => {
      const value = (kept as ManagedFields)[field]
      return value === undefined || value === null ? [] : [[field, value]]
    }),
  ),
})

/** Resources of the tool's runs on this machine; nothing keeps running. */
export const managedWorkload: WorkloadSpec = {
  ...{ entrypoint: null, arguments: null, cpuMillicores: 1000, memoryMb: 1024, instances: 0 },
  ...{ ports: [], volumes: [], readiness: null, liveness: null, readyTimeoutMs: 0, stopGraceMs: moduleGraceMs },
}

export const managedTask = moduleTask

const publicValues = (port: number) => ({
  HOST_EXTERNAL: { output: 'HOST' },
  PORT_EXTERNAL: { output: 'PORT' },
  [`PORT_${port}_TCP_EXTERNAL`]: { output: 'PORT' },
})

/** The variables for other services (variables/places.ts): the same names as of a database in CONTAINER mode. */
export const managedBuiltIns = (type: string, isPublic: boolean) => ({
  HOST: { output: 'HOST' },
  PORT: { output: 'PORT' },
  LOGIN: { output: 'LOGIN' },
  DEFAULT_DATABASE_NAME: { output: 'DATABASE' },
  PASSWORD: { output: 'PASSWORD', isSecret: true },
  DATABASE_URL: { output: 'URL', isSecret: true },
  DATABASE_URL_INTERNAL: { output: 'URL', isSecret: true },
  ...(isPublic ? publicValues(databaseTypes[type]!.port) : {}),
})

const refuse = (output: string, why: string): DeploymentError =>
  new DeploymentError('module_output', `The output ${output} of the module cannot be used: ${why}.`)

const hostName =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$/

/**
 * A name, or an address of another machine. It may contain input of a tenant: an address by which a service's program
 * would reach its own machine, or the metadata of a cloud, is refused.
 */
const judgeHost = (host: string): string => {
  const text = host.replace(/^\[(.*)\]$/, '$1')
  if (isIP(text) === 0) {
    if (!hostName.test(text)) throw refuse('host', 'it must be a name of up to 253 characters, or an address')
    if (/^(.+\.)?localhost\.?$/i.test(text) || /^((0x[\da-f]+|\d+)\.?)+$/i.test(text))
      throw refuse('host', 'it names the machine that asks, or is not a whole address')
    if (/^(metadata|metadata\.google\.internal|instance-data(\..*)?)\.?$/i.test(text))
      throw refuse('host', 'it is the metadata service of a cloud')
    return text
  }
  const { kind, label } = classify(parseAddress(text)!)
  if (kind === 'loopback' || kind === 'guarded') throw refuse('host', `it is ${label}`)
  return text
}

const judgePort = (text: string): string => {
  if (!/^\d{1,5}$/.test(text) || Number(text) < 1 || Number(text) > 65_535)
    throw refuse('port', 'it must be a whole number from 1 to 65535')
  return String(Number(text))
}

/** It becomes a variable, and a part of a URL. */
const judgeText = (output: string, text: string, most: number): string => {
  if (text.length > most || /[\p{Cc}\p{Zl}\p{Zp}]/u.test(text) || !text.isWellFormed())
    throw refuse(output, `it must have at most ${most} characters, and no control characters`)
  return text
}

/** See `DeployableKind.told`. */
export const judgeTold: NonNullable<DeployableKind['told']> = ({ type }, values): Output[] => {
  const usual = databaseTypes[type]!
  for (const output of ['host', 'password'])
    if (!values[output])
      throw new DeploymentError('module_output', `The module has no value for the ${output} of the database.`)
  const host = judgeHost(values.host!)
  const port = judgePort(values.port ?? String(usual.port))
  const login = judgeText('login', values.login ?? usual.login, 128)
  const password = judgeText('password', values.password!, 1024)
  const name = judgeText('database', values.database ?? usual.database, 128)
  const [user, word, path] = [login, password, name].map(encodeURIComponent)
  const place = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`
  const open = { HOST: host, PORT: port, LOGIN: login, DATABASE: name }
  const secret = { PASSWORD: password, URL: `${usual.scheme}://${user}:${word}@${place}/${path}` }
  const outputs = (all: Record<string, string>, sensitive: boolean): Output[] =>
    Object.entries(all).map(([each, value]) => ({ name: each, value, sensitive }))
  return [...outputs(open, false), ...outputs(secret, true)]
}
