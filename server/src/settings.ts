/**
 * The environment and the settings file as typed settings. Pure except for `readSettings`: reports all problems at once,
 * each as one sentence that names the variable, and never repeats the value of a secret. Does not know what the settings
 * are used for.
 */
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import type { PreparationLimits } from './builds/preparation-limits.ts'
import { type DatabaseModules, databaseModulesAt } from './clusters/database-modules.ts'
import { type ClusterModules, clusterModulesAt } from './clusters/modules.ts'
import { type VolumeSizes, volumeSizeModes } from './deployments/request/volume-sizes.ts'
import { domainName } from './lib/net/domain-name.ts'
import { Secret } from './lib/secret.ts'
import { type Limits, limitNames, limitSettings, usualLimits, usualPorts } from './limits/limits.ts'
import { type AcmeSettings, readAcme, tlsSettings } from './settings-acme.ts'
import { engineNames, type FileSetting, loadSettingsFile, SettingsError, settingsFileName } from './settings-file.ts'
import {
  address,
  adminToken,
  allowList,
  databaseUrl,
  dockerHost,
  emails,
  host,
  imageNames,
  issuer,
  networks,
  objectName,
  oneOf,
  onOff,
  origins,
  type PortRange,
  pageAddress,
  parts,
  path,
  portList,
  portRange,
  processNumbers,
  schedule,
  socketPaths,
  text,
  whole,
} from './settings-values.ts'
import { usualAuditDays } from './store/event-retention.ts'

export interface Settings {
  host: string
  port: number
  routerHost: string
  routerPort: number
  /** How many processes of the router share its ports: so many at once, or up to so many as their load asks for. */
  routerProcesses: { least: number; most: number }
  /** For HTTPS; if undefined, the router serves none. */
  routerTlsPort: number | undefined
  /** Of the header Strict-Transport-Security; 0: none. */
  hstsSeconds: number
  /** Below which every service has a name; if undefined, below `localhost`. */
  domain: string | undefined
  /** Where the router publishes the API. */
  apiHost: string | undefined
  /** Where certificates come from, if the router has TLS. */
  acme: AcmeSettings
  /** Ports of this machine for the TCP and UDP ports of services, both ends included. */
  portRange: PortRange
  /** Further ports of this machine that a service can request; privileged ones only if listed. */
  extraPorts: readonly PortRange[]
  /** Of a database on this machine that we reach over TCP. */
  databasePort: number | undefined
  /** Absolute. */
  dataDir: string
  /** If undefined, we start a server ourselves. May contain a password. */
  databaseUrl: string | undefined
  /** If undefined, one is generated at the first start. */
  adminToken: Secret | undefined
  /** Whether there is a Docker engine for this server: the one that its default clusters are. */
  docker: boolean
  /** Whether the first start deploys the sample. */
  sample: boolean
  /** The file of master keys, absolute, one key per line: the first seals, all can open. */
  masterKeyFile: string
  outboundAllow: readonly string[]
  /** Requests per minute per token; 0 disables the limit. */
  rateLimit: number
  /** Failed authentications per minute and address; 0 disables the limit. */
  failedLoginLimit: number
  /** Requests without a caller per minute: of one address, and of all together; 0 disables a limit. */
  anonymousLimit: number
  anonymousTotal: number
  /** For `/metrics`; if undefined, the operator's token and programs on this machine may read them. */
  metricsToken: Secret | undefined
  /** Proxies in front of us, as addresses or networks: their forwarding headers are trusted. */
  trustedProxies: readonly string[]
  /** Origins of web pages that may call the API from a browser. */
  corsOrigins: readonly string[]
  /** Where people use the console, without a slash at the end; if undefined, links lead to the API's own address. */
  consoleUrl: string | undefined
  /** Where others reach the API, without a slash at the end; git hosts are told it. */
  publicUrl: string | undefined
  /** Limits of one organization; 0 disables a limit. */
  limits: Limits
  /** Megabytes to keep free on the disks of the engine and of the data directory; 0 disables the reserve. */
  diskReserveMb: number
  /** How long events of the audit log are kept; 0: for good. */
  auditDays: number
  statusVocabulary: 'auto' | 'running' | 'deployment'
  buildConcurrency: number
  /** Megabytes that the caches of an organization's build steps may keep on each engine between builds. */
  buildCacheMb: number
  /** A DNS resolver for builds; if undefined, the engine's own. */
  buildDns: string | undefined
  deployConcurrency: number
  /** Whether a service with storage needs a cluster whose engine limits the size of volumes. */
  volumeSizes: VolumeSizes
  /** How long a deployment waits for an engine that does not answer. */
  engineWaitSeconds: number
  gitPollSeconds: number
  imagePollSeconds: number
  /** How long an environment of a pull request that nobody pushes to is kept. */
  previewHours: number
  /** How long nobody asks for a service with a minimum of 0 before it sleeps; 0: it never does. */
  sleepAfterSeconds: number
  /** After how many days what a cluster has and the database does not know is removed; 0: never by itself. */
  orphanDays: number
  /** How long the instances of a service are too busy, or not busy enough, before there are more, or fewer. */
  scaleUpSeconds: number
  scaleDownSeconds: number
  /** Limits for reading a repository for a build and sending its files. */
  preparation: PreparationLimits
  /** Of one git process. */
  gitMemoryMb: number
  /** Of one push to a repository on this server. */
  pushMaxMb: number
  /** Programs that terraform services run, by path; if undefined, found on PATH. */
  tools: { tofu: string | undefined; terraform: string | undefined; helm: string | undefined }
  /** Of services on Kubernetes clusters: the user that programs run as, and how their hosts are published. */
  kubernetes: {
    runAs: number | undefined
    argoNamespace: string
    ingressClass: string | undefined
    certIssuer: string | undefined
    /** Their ingresses have certificates for all hosts. */
    ingressTls: boolean
  }
  /** By which clusters are made at cloud providers; undefined: by none. */
  clusterModules: ClusterModules | undefined
  /** By which databases in MANAGED mode are made; undefined: by none. */
  databaseModules: DatabaseModules | undefined
  /** The maximum size of an image from a registry. */
  imageMaxMb: number
  /** Names of images that may replace the public registry's, if the operator loaded them into the engine; or `*`. */
  engineImages: readonly string[]
  /** As Docker's own tools read it; undefined means the local socket. */
  dockerHost: string | undefined
  /** Sockets of engines on this machine that a cluster may name. */
  engineSockets: readonly string[]
  logLevel: LogLevel
  /** Seconds before each attempt to deliver an event, counted from the attempt before. */
  webhookSchedule: readonly number[]
  /** Whose JWTs are accepted; if undefined, none are. */
  oidc: Oidc | undefined
}

export interface Oidc {
  issuer: string
  /** One of these must be in a token's audience; the client's own id, which ID tokens name, is among them. */
  audience: readonly string[]
  /** In lower case: these become owner or admins of the first organization when they sign in. */
  adminEmails: readonly string[]
  clientId: string | undefined
  clientSecret: Secret | undefined
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]

const vocabularies = ['auto', 'running', 'deployment'] as const

/** Below the range Linux uses for outgoing connections, above the ports where the engine publishes containers. */
const usualRange: PortRange = Object.freeze({ first: 30_000, last: 32_767 })

const minute = 60
const hour = 3600
const defaultSchedule = [0, 5, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour]

/**
 * Well-known ones of the public registry: anyone who gives an image on an engine one of these names means that image.
 */
const officialImages: readonly string[] = Object.freeze(
  [
    ['busybox', 'alpine', 'debian', 'ubuntu', 'fedora', 'rockylinux', 'almalinux', 'amazonlinux', 'buildpack-deps'],
    ['node', 'python', 'golang', 'ruby', 'php', 'rust', 'perl', 'elixir', 'erlang', 'haskell', 'swift', 'gcc'],
    ['openjdk', 'eclipse-temurin', 'amazoncorretto', 'maven', 'gradle', 'tomcat', 'clojure', 'julia', 'r-base'],
    ['postgres', 'mysql', 'mariadb', 'mongo', 'redis', 'valkey', 'memcached', 'cassandra', 'influxdb', 'neo4j'],
    ['nginx', 'httpd', 'caddy', 'traefik', 'haproxy', 'varnish', 'registry', 'docker', 'rabbitmq', 'nats'],
    ['elasticsearch', 'kibana', 'logstash', 'wordpress', 'nextcloud', 'ghost', 'drupal', 'joomla', 'hello-world'],
  ].flat(),
)

type Environment = Readonly<Record<string, string | undefined>>

/** `slipway.env`, by name. */
type InFile = ReadonlyMap<string, FileSetting>

const lineOf = ({ line }: FileSetting): string => `${settingsFileName}, line ${line}`

/** Reads variables one by one; collects the problems and the names that were read. */
const createReader = (env: Environment, file: InFile) => {
  const names = new Set<string>()
  const problems: string[] = []
  /** The default if the variable is absent or empty, or if `parse` returns a string that says what it must be. */
  const read = <T>(name: string, fallback: T, parse: (text: string) => { value: T } | string): T => {
    names.add(name)
    const inFile = env[name] === undefined ? file.get(name) : undefined
    const text = (inFile?.value ?? env[name])?.trim() ?? ''
    if (text === '') return fallback
    const parsed = parse(text)
    if (typeof parsed !== 'string') return parsed.value
    problems.push(`${inFile === undefined ? '' : `${lineOf(inFile)}: `}${name} must be ${parsed}.`)
    return fallback
  }
  return { names, problems, read }
}

/** No service may take its port while it is down. */
const localPortOf = (url: string | undefined): number | undefined => {
  const place = url === undefined ? null : URL.parse(url)
  const isHere = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(place?.hostname ?? '')
  return isHere ? Number(place!.port || 5432) : undefined
}

/** Absent without an issuer; then the other variables are ignored. */
const readOidc = (read: ReturnType<typeof createReader>['read'], problems: string[]): Oidc | undefined => {
  const found = read<string | undefined>('SLIPWAY_OIDC_ISSUER', undefined, issuer)
  const clientId = read<string | undefined>('SLIPWAY_OIDC_CLIENT_ID', undefined, text)
  const clientSecret = read<Secret | undefined>('SLIPWAY_OIDC_CLIENT_SECRET', undefined, (value) => ({
    value: new Secret(value),
  }))
  const named = read<readonly string[]>('SLIPWAY_OIDC_AUDIENCE', [], (value) => ({ value: parts(value) }))
  const adminEmails = read<readonly string[]>('SLIPWAY_OIDC_ADMIN_EMAILS', Object.freeze([]), emails)
  if (found === undefined) return undefined
  const audience = [...new Set(clientId === undefined ? named : [...named, clientId])]
  if (audience.length === 0)
    problems.push('SLIPWAY_OIDC_AUDIENCE or SLIPWAY_OIDC_CLIENT_ID must be set together with SLIPWAY_OIDC_ISSUER.')
  return Object.freeze({ issuer: found, audience, adminEmails, clientId, clientSecret })
}

const readLimits = (read: ReturnType<typeof createReader>['read'], range: PortRange): Limits => {
  const limits = { ...usualLimits, ports: usualPorts(range) }
  for (const name of limitNames) limits[name] = read(limitSettings[name], limits[name], whole(0, 1_000_000_000))
  return Object.freeze(limits)
}

const readPreparation = (read: ReturnType<typeof createReader>['read']): PreparationLimits =>
  Object.freeze({
    contextBytes: read('SLIPWAY_CONTEXT_MAX_MB', 500, whole(1, 1_000_000)) * 2 ** 20,
    contextEntries: read('SLIPWAY_CONTEXT_MAX_ENTRIES', 100_000, whole(1, 10_000_000)),
    dockerfileBytes: read('SLIPWAY_DOCKERFILE_MAX_KB', 256, whole(1, 16_384)) * 1024,
    ignoreFileBytes: read('SLIPWAY_DOCKERIGNORE_MAX_KB', 64, whole(1, 1024)) * 1024,
    readMs: read('SLIPWAY_PREPARE_SECONDS', minute, whole(1, hour)) * 1000,
    contextMs: read('SLIPWAY_CONTEXT_SECONDS', 10 * minute, whole(1, 24 * hour)) * 1000,
  })

/** What makes no sense without a Docker engine. */
const refuseEngine = ({ docker, dockerHost, engineSockets, sample }: Settings): string[] => {
  const named: [name: string, isSet: boolean][] = [
    ['DOCKER_HOST', dockerHost !== undefined],
    ['SLIPWAY_ENGINE_SOCKETS', engineSockets.length > 0],
    ['SLIPWAY_SAMPLE=on', sample],
  ]
  if (docker) return []
  return named.flatMap(([name, isSet]) => (isSet ? [`${name} cannot be set together with SLIPWAY_DOCKER=off.`] : []))
}

/** What makes no sense without TLS, or at the same place as something else. */
const refuseTls = (settings: Settings, isSet: (name: string) => boolean): string[] => {
  const { host, port, routerHost, routerPort, routerTlsPort, domain, apiHost } = settings
  const problems: string[] = []
  if (routerTlsPort === undefined)
    for (const name of tlsSettings)
      if (isSet(name)) problems.push(`${name} needs SLIPWAY_ROUTER_TLS_PORT: without it the router has no TLS.`)
  if (routerTlsPort === routerPort) problems.push('SLIPWAY_ROUTER_TLS_PORT must differ from SLIPWAY_ROUTER_PORT.')
  if (routerTlsPort === port && routerHost === host)
    problems.push('SLIPWAY_ROUTER_TLS_PORT must differ from SLIPWAY_PORT.')
  if (apiHost !== undefined && apiHost === domain) problems.push('SLIPWAY_API_HOST must differ from SLIPWAY_DOMAIN.')
  if (isSet('SLIPWAY_ACME_EAB_KID') !== isSet('SLIPWAY_ACME_EAB_HMAC'))
    problems.push('SLIPWAY_ACME_EAB_KID and SLIPWAY_ACME_EAB_HMAC must be set together.')
  return problems
}

/** Where the router publishes the API over HTTPS. */
const addressOfApi = ({ apiHost, routerTlsPort: port }: Settings): string | undefined =>
  apiHost === undefined || port === undefined ? undefined : `https://${apiHost}${port === 443 ? '' : `:${port}`}`

const distance = (left: string, right: string): number => {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let i = 1; i <= left.length; i++) {
    const next = [i]
    for (let j = 1; j <= right.length; j++) {
      const replaced = row[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return row.at(-1)!
}

const hintAt = (name: string, known: ReadonlySet<string>): string => {
  const [nearest = ''] = [...known].sort((a, b) => distance(name, a) - distance(name, b))
  return distance(name, nearest) <= 6 ? `; did you mean ${nearest}?` : '.'
}

const warnOfUnknown = (env: Environment, known: ReadonlySet<string>): string[] =>
  Object.keys(env)
    .filter((name) => name.startsWith('SLIPWAY_') && !known.has(name))
    .sort()
    .map((name) => `${name} is not a known setting and is ignored${hintAt(name, known)}`)

/** The file is ours alone: what is not a setting in it is a mistake. */
const refuseUnknown = (file: InFile, known: ReadonlySet<string>): string[] =>
  [...file].flatMap(([name, setting]) => {
    if (name === 'SLIPWAY_DATA_DIR')
      return [`${lineOf(setting)}: SLIPWAY_DATA_DIR says where this file is: set it in the environment.`]
    if (known.has(name) || engineNames.includes(name)) return []
    return [`${lineOf(setting)}: ${name} is not a setting${hintAt(name, known)}`]
  })

const dataDirOf = (env: Environment): string => resolve(env.SLIPWAY_DATA_DIR?.trim() || '.slipway')

/**
 * Throws `SettingsError` with every problem. Unknown names that begin with SLIPWAY_ become warnings; in the file, every
 * unknown name is a problem.
 */
export const parseSettings = (
  env: Environment,
  file: InFile = new Map(),
): { settings: Settings; warnings: string[] } => {
  const { names, problems, read } = createReader(env, file)
  const cores = availableParallelism()
  const port = whole(1, 65535)
  const concurrency = whole(1, 1000)
  const dataDir = dataDirOf(env)
  names.add('SLIPWAY_DATA_DIR')
  const docker = read('SLIPWAY_DOCKER', true, onOff)
  const range = read('SLIPWAY_PORT_RANGE', usualRange, portRange)
  const settings: Settings = {
    host: read('SLIPWAY_HOST', '127.0.0.1', host),
    port: read('SLIPWAY_PORT', 8080, port),
    routerHost: read('SLIPWAY_ROUTER_HOST', '127.0.0.1', host),
    routerPort: read('SLIPWAY_ROUTER_PORT', 8000, port),
    routerTlsPort: read<number | undefined>('SLIPWAY_ROUTER_TLS_PORT', undefined, port),
    routerProcesses: read('SLIPWAY_ROUTER_PROCESSES', { least: 1, most: Math.min(cores, 8) }, processNumbers),
    hstsSeconds: read('SLIPWAY_HSTS_SECONDS', 0, whole(0, 63_072_000)),
    domain: read<string | undefined>('SLIPWAY_DOMAIN', undefined, domainName),
    apiHost: read<string | undefined>('SLIPWAY_API_HOST', undefined, domainName),
    acme: readAcme(read, problems),
    portRange: range,
    extraPorts: read<readonly PortRange[]>('SLIPWAY_EXTRA_PORTS', Object.freeze([]), portList),
    databasePort: localPortOf(env.DATABASE_URL ?? file.get('DATABASE_URL')?.value),
    dataDir,
    databaseUrl: read<string | undefined>('DATABASE_URL', undefined, databaseUrl),
    adminToken: read<Secret | undefined>('SLIPWAY_ADMIN_TOKEN', undefined, adminToken),
    docker,
    sample: read('SLIPWAY_SAMPLE', docker, onOff),
    masterKeyFile: resolve(read('SLIPWAY_MASTER_KEY_FILE', `${dataDir}/keys/master`, text)),
    outboundAllow: read<readonly string[]>('SLIPWAY_OUTBOUND_ALLOW', Object.freeze([]), allowList),
    rateLimit: read('SLIPWAY_RATE_LIMIT', 600, whole(0, 1_000_000)),
    failedLoginLimit: read('SLIPWAY_FAILED_LOGIN_LIMIT', 30, whole(0, 1_000_000)),
    anonymousLimit: read('SLIPWAY_ANONYMOUS_LIMIT', 6000, whole(0, 1_000_000)),
    anonymousTotal: read('SLIPWAY_ANONYMOUS_TOTAL', 30_000, whole(0, 10_000_000)),
    metricsToken: read<Secret | undefined>('SLIPWAY_METRICS_TOKEN', undefined, adminToken),
    trustedProxies: read<readonly string[]>('SLIPWAY_TRUSTED_PROXIES', Object.freeze([]), networks),
    corsOrigins: read<readonly string[]>('SLIPWAY_CORS_ORIGINS', Object.freeze([]), origins),
    consoleUrl: read<string | undefined>('SLIPWAY_CONSOLE_URL', undefined, pageAddress),
    publicUrl: read<string | undefined>('SLIPWAY_PUBLIC_URL', undefined, pageAddress),
    limits: readLimits(read, range),
    diskReserveMb: read('SLIPWAY_DISK_RESERVE_MB', 2048, whole(0, 1_000_000_000)),
    auditDays: read('SLIPWAY_AUDIT_DAYS', usualAuditDays, whole(0, 36_500)),
    statusVocabulary: read('SLIPWAY_STATUS_VOCABULARY', 'auto', oneOf(vocabularies)),
    buildConcurrency: read('SLIPWAY_BUILD_CONCURRENCY', cores, concurrency),
    buildCacheMb: read('SLIPWAY_BUILD_CACHE_MB', 5120, whole(0, 1_000_000_000)),
    buildDns: read<string | undefined>('SLIPWAY_BUILD_DNS', undefined, address),
    deployConcurrency: read('SLIPWAY_DEPLOY_CONCURRENCY', 2 * cores, concurrency),
    volumeSizes: read('SLIPWAY_VOLUME_SIZES', 'auto', oneOf(volumeSizeModes)),
    engineWaitSeconds: read('SLIPWAY_ENGINE_WAIT_SECONDS', 120, whole(1, 3600)),
    gitPollSeconds: read('SLIPWAY_GIT_POLL_SECONDS', 60, whole(0, 86_400)),
    imagePollSeconds: read('SLIPWAY_IMAGE_POLL_SECONDS', 300, whole(0, 86_400)),
    previewHours: read('SLIPWAY_PREVIEW_HOURS', 168, whole(1, 8760)),
    sleepAfterSeconds: read('SLIPWAY_SLEEP_AFTER_SECONDS', 300, whole(0, 86_400)),
    orphanDays: read('SLIPWAY_ORPHANS_REMOVE_AFTER_DAYS', 0, whole(0, 3650)),
    scaleUpSeconds: read('SLIPWAY_SCALE_UP_SECONDS', 30, whole(1, 3600)),
    scaleDownSeconds: read('SLIPWAY_SCALE_DOWN_SECONDS', 300, whole(1, 3600)),
    preparation: readPreparation(read),
    gitMemoryMb: read('SLIPWAY_GIT_MEMORY_MB', 1024, whole(256, 1_000_000)),
    pushMaxMb: read('SLIPWAY_PUSH_MAX_MB', 200, whole(1, 100_000)),
    tools: Object.freeze({
      tofu: read<string | undefined>('SLIPWAY_TOFU', undefined, path),
      terraform: read<string | undefined>('SLIPWAY_TERRAFORM', undefined, path),
      helm: read<string | undefined>('SLIPWAY_HELM', undefined, path),
    }),
    kubernetes: Object.freeze({
      runAs: read<number | undefined>('SLIPWAY_KUBERNETES_RUN_AS', undefined, whole(1, 2_147_483_647)),
      ingressClass: read<string | undefined>('SLIPWAY_KUBERNETES_INGRESS_CLASS', undefined, objectName),
      certIssuer: read<string | undefined>('SLIPWAY_KUBERNETES_CERT_ISSUER', undefined, objectName),
      ingressTls: read('SLIPWAY_KUBERNETES_INGRESS_TLS', false, onOff),
      argoNamespace: read('SLIPWAY_KUBERNETES_ARGOCD_NAMESPACE', 'argocd', objectName),
    }),
    clusterModules: read<ClusterModules | undefined>('SLIPWAY_CLUSTER_MODULES', undefined, clusterModulesAt),
    databaseModules: read<DatabaseModules | undefined>('SLIPWAY_DATABASE_MODULES', undefined, databaseModulesAt),
    imageMaxMb: read('SLIPWAY_IMAGE_MAX_MB', 10_240, whole(1, 1_000_000)),
    engineImages: read<readonly string[]>('SLIPWAY_ENGINE_IMAGES', officialImages, imageNames),
    engineSockets: read<readonly string[]>('SLIPWAY_ENGINE_SOCKETS', Object.freeze([]), socketPaths),
    dockerHost: read<string | undefined>('DOCKER_HOST', undefined, dockerHost),
    logLevel: read('SLIPWAY_LOG_LEVEL', 'info', oneOf(logLevels)),
    webhookSchedule: read<readonly number[]>('SLIPWAY_WEBHOOK_SCHEDULE', Object.freeze(defaultSchedule), schedule),
    oidc: readOidc(read, problems),
  }
  if (settings.routerPort === settings.port && settings.routerHost === settings.host)
    problems.push('SLIPWAY_ROUTER_PORT must differ from SLIPWAY_PORT.')
  const isGiven = (name: string): boolean => (env[name] ?? file.get(name)?.value ?? '').trim() !== ''
  const all = [...problems, ...refuseTls(settings, isGiven), ...refuseEngine(settings), ...refuseUnknown(file, names)]
  if (all.length > 0) throw new SettingsError(all)
  const publicUrl = settings.publicUrl ?? addressOfApi(settings)
  return { settings: Object.freeze({ ...settings, publicUrl }), warnings: warnOfUnknown(env, names) }
}

/** The settings of this process. Prints what is wrong with them on standard error and exits with code 2. */
export const readSettings = (): Settings => {
  try {
    const file = loadSettingsFile(dataDirOf(process.env))
    const { settings, warnings } = parseSettings(process.env, file)
    for (const name of engineNames) {
      const inFile = file.get(name)
      if (inFile !== undefined) process.env[name] ??= inFile.value
    }
    for (const warning of warnings) process.stderr.write(`${warning}\n`)
    return settings
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error
    process.stderr.write(`${error.message}\n`)
    return process.exit(2)
  }
}
