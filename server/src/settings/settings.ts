/**
 * The environment and the settings file as typed settings. Pure except for `readSettings`: reports all problems at once,
 * each as one sentence that names the variable, and never repeats the value of a secret. Does not know what the settings
 * are used for.
 */
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import type { PreparationLimits } from '../builds/preparation-limits.ts'
import { databaseModulesAt } from '../clusters/database-modules.ts'
import { clusterModulesAt } from '../clusters/modules.ts'
import { volumeSizeModes } from '../deployments/desired/volume-sizes.ts'
import { domainName } from '../lib/net/domain-name.ts'
import { Secret } from '../lib/secret.ts'
import { type Keeping, keepingSettings, usualKeeping } from '../limits/keeping.ts'
import { type Limits, limitNames, limitSettings, usualLimits, usualPorts } from '../limits/limits.ts'
import { usualAuditDays } from '../store/event-retention.ts'
import { readAcme, tlsSettings } from './acme.ts'
import { engineNames, type FileSetting, loadSettingsFile, SettingsError, settingsFileName } from './file.ts'
import {
  address,
  adminToken,
  ageRecipient,
  allowList,
  backupPlace,
  cronExpression,
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
  origin,
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
} from './values.ts'

interface Oidc {
  issuer: string
  /** One of these must be in a token's audience; the client's own id, which ID tokens name, is among them. */
  audience: readonly string[]
  /** In lower case: these become owner or admins of the first organization when they sign in. */
  adminEmails: readonly string[]
  clientId: string | undefined
  clientSecret: Secret | undefined
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

const vocabularies = ['auto', 'running', 'deployment'] as const

/** Below the range Linux uses for outgoing connections, above the ports where the engine publishes containers. */
const usualRange: PortRange = Object.freeze({ first: 30_000, last: 32_767 })

const cores = availableParallelism()
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
  const optional = <T>(name: string, parse: (text: string) => { value: T } | string): T | undefined =>
    read<T | undefined>(name, undefined, parse)
  return { names, problems, read, optional }
}

type Reader = ReturnType<typeof createReader>

/** No service may take its port while it is down. */
const localPortOf = (url: string | undefined): number | undefined => {
  const place = url === undefined ? null : URL.parse(url)
  const isHere = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(place?.hostname ?? '')
  return isHere ? Number(place!.port || 5432) : undefined
}

/** Absent without an issuer; then the other variables are ignored. */
const readOidc = ({ read, optional, problems }: Reader): Oidc | undefined => {
  const found = optional('SLIPWAY_OIDC_ISSUER', issuer)
  const clientId = optional('SLIPWAY_OIDC_CLIENT_ID', text)
  const clientSecret = optional('SLIPWAY_OIDC_CLIENT_SECRET', (value) => ({ value: new Secret(value) }))
  const named = read<readonly string[]>('SLIPWAY_OIDC_AUDIENCE', [], (value) => ({ value: parts(value) }))
  const adminEmails = read<readonly string[]>('SLIPWAY_OIDC_ADMIN_EMAILS', Object.freeze([]), emails)
  if (found === undefined) return undefined
  const audience = [...new Set(clientId === undefined ? named : [...named, clientId])]
  if (audience.length === 0)
    problems.push('SLIPWAY_OIDC_AUDIENCE or SLIPWAY_OIDC_CLIENT_ID must be set together with SLIPWAY_OIDC_ISSUER.')
  return Object.freeze({ issuer: found, audience, adminEmails, clientId, clientSecret })
}

const readLimits = (read: Reader['read'], range: PortRange): Limits => {
  const limits = { ...usualLimits, ports: usualPorts(range) }
  for (const name of limitNames) limits[name] = read(limitSettings[name], limits[name], whole(0, 1_000_000_000))
  return Object.freeze(limits)
}

const readKeeping = (read: Reader['read']): Keeping => {
  const number = (name: keyof Keeping, least: number, most: number): number =>
    read(keepingSettings[name], usualKeeping[name], whole(least, most))
  return Object.freeze({
    releases: number('releases', 1, 1000),
    deployments: number('deployments', 1, 100_000),
    buildCacheDays: number('buildCacheDays', 1, 3650),
    buildCacheMb: number('buildCacheMb', 0, 1_000_000_000),
    mirrorDays: number('mirrorDays', 1, 3650),
    webhookDays: number('webhookDays', 1, 3650),
    idempotencyHours: number('idempotencyHours', 1, 8760),
  })
}

const readPreparation = (read: Reader['read']): PreparationLimits =>
  Object.freeze({
    contextBytes: read('SLIPWAY_CONTEXT_MAX_MB', 500, whole(1, 1_000_000)) * 2 ** 20,
    contextEntries: read('SLIPWAY_CONTEXT_MAX_ENTRIES', 100_000, whole(1, 10_000_000)),
    dockerfileBytes: read('SLIPWAY_DOCKERFILE_MAX_KB', 256, whole(1, 16_384)) * 1024,
    ignoreFileBytes: read('SLIPWAY_DOCKERIGNORE_MAX_KB', 64, whole(1, 1024)) * 1024,
    readMs: read('SLIPWAY_PREPARE_SECONDS', minute, whole(1, hour)) * 1000,
    contextMs: read('SLIPWAY_CONTEXT_SECONDS', 10 * minute, whole(1, 24 * hour)) * 1000,
  })

/** Settings that need a Docker engine. */
const refuseEngine = ({ docker, dockerHost, engineSockets, sample }: Settings): string[] => {
  const named: [name: string, isSet: boolean][] = [
    ['DOCKER_HOST', dockerHost !== undefined],
    ['SLIPWAY_ENGINE_SOCKETS', engineSockets.length > 0],
    ['SLIPWAY_SAMPLE=on', sample],
  ]
  if (docker) return []
  return named.flatMap(([name, isSet]) => (isSet ? [`${name} cannot be set together with SLIPWAY_DOCKER=off.`] : []))
}

/** Settings that need TLS, or conflict with another address. */
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

/** The file is ours alone: an unknown name in it is a mistake. */
const refuseUnknown = (file: InFile, known: ReadonlySet<string>): string[] =>
  [...file].flatMap(([name, setting]) => {
    if (name === 'SLIPWAY_DATA_DIR')
      return [`${lineOf(setting)}: SLIPWAY_DATA_DIR says where this file is: set it in the environment.`]
    if (known.has(name) || engineNames.includes(name)) return []
    return [`${lineOf(setting)}: ${name} is not a setting${hintAt(name, known)}`]
  })

const dataDirOf = (env: Environment): string => resolve(env.SLIPWAY_DATA_DIR?.trim() || '.slipway')

/** Where the server and its router listen, what they work with, and who may reach them. */
const readPlaces = ({ read, optional, problems }: Reader, env: Environment, file: InFile) => {
  const port = whole(1, 65535)
  const dataDir = dataDirOf(env)
  const docker = read('SLIPWAY_DOCKER', true, onOff)
  return {
    host: read('SLIPWAY_HOST', '127.0.0.1', host),
    port: read('SLIPWAY_PORT', 8080, port),
    routerHost: read('SLIPWAY_ROUTER_HOST', '127.0.0.1', host),
    routerPort: read('SLIPWAY_ROUTER_PORT', 8000, port),
    /** For HTTPS; if undefined, the router serves none. */
    routerTlsPort: optional('SLIPWAY_ROUTER_TLS_PORT', port),
    /** How many processes of the router share its ports: so many at once, or up to so many as their load requires. */
    routerProcesses: read('SLIPWAY_ROUTER_PROCESSES', { least: 1, most: Math.min(cores, 8) }, processNumbers),
    /** For the header Strict-Transport-Security; 0: none. */
    hstsSeconds: read('SLIPWAY_HSTS_SECONDS', 0, whole(0, 63_072_000)),
    /** The domain of services' names; if undefined, `localhost`. */
    domain: optional('SLIPWAY_DOMAIN', domainName),
    apiHost: optional('SLIPWAY_API_HOST', domainName),
    /** Where certificates come from, if the router has TLS. */
    acme: readAcme(read, problems),
    /** Ports of this machine for the TCP and UDP ports of services, both ends included. */
    portRange: read('SLIPWAY_PORT_RANGE', usualRange, portRange),
    /** Further ports of this machine that a service can request; privileged ones only if listed. */
    extraPorts: read<readonly PortRange[]>('SLIPWAY_EXTRA_PORTS', Object.freeze([]), portList),
    /** Port of a database on this machine that we reach over TCP. */
    databasePort: localPortOf(env.DATABASE_URL ?? file.get('DATABASE_URL')?.value),
    /** Absolute. */
    dataDir,
    /** If undefined, we start a server ourselves. May contain a password. */
    databaseUrl: optional('DATABASE_URL', databaseUrl),
    /** If undefined, one is generated at the first start. */
    adminToken: optional('SLIPWAY_ADMIN_TOKEN', adminToken),
    /** Whether there is a Docker engine for this server: that of its default clusters. */
    docker,
    /** Whether the first start deploys the sample. */
    sample: read('SLIPWAY_SAMPLE', docker, onOff),
    /** Where backup storages of the kind FOLDER are, absolute: a folder per organization. */
    backupFolder: read('SLIPWAY_BACKUP_FOLDER', `${dataDir}/backups`, path),
    /** The file of master keys, absolute, one key per line: the first seals, all can open. */
    masterKeyFile: resolve(read('SLIPWAY_MASTER_KEY_FILE', `${dataDir}/keys/master`, text)),
    outboundAllow: read<readonly string[]>('SLIPWAY_OUTBOUND_ALLOW', Object.freeze([]), allowList),
    /** Requests per minute per token; 0 disables the limit. */
    rateLimit: read('SLIPWAY_RATE_LIMIT', 600, whole(0, 1_000_000)),
    /** Failed authentications per minute and address; 0 disables the limit. */
    failedLoginLimit: read('SLIPWAY_FAILED_LOGIN_LIMIT', 30, whole(0, 1_000_000)),
    /** Requests without a caller per minute: of one address, and of all together; 0 disables a limit. */
    anonymousLimit: read('SLIPWAY_ANONYMOUS_LIMIT', 6000, whole(0, 1_000_000)),
    anonymousTotal: read('SLIPWAY_ANONYMOUS_TOTAL', 30_000, whole(0, 10_000_000)),
    /** For `/metrics`; if undefined, the operator's token and programs on this machine may read them. */
    metricsToken: optional('SLIPWAY_METRICS_TOKEN', adminToken),
    /** Proxies in front of us, as addresses or networks: their forwarding headers are trusted. */
    trustedProxies: read<readonly string[]>('SLIPWAY_TRUSTED_PROXIES', Object.freeze([]), networks),
    /** Origins of web pages that may call the API from a browser. */
    corsOrigins: read<readonly string[]>('SLIPWAY_CORS_ORIGINS', Object.freeze([]), origins),
    /**
     * The address of the console for users, without a trailing slash; if undefined, links lead to the API's own
     * address.
     */
    consoleUrl: optional('SLIPWAY_CONSOLE_URL', pageAddress),
    /** The address of the API for other machines, without a trailing slash; git hosts call it. */
    publicUrl: optional('SLIPWAY_PUBLIC_URL', pageAddress),
  }
}

/** Backups of this installation itself, by a schedule. */
const readOwnBackups = ({ read, optional, problems }: Reader) => {
  const to = optional('SLIPWAY_BACKUP_TO', backupPlace)
  const recipient = optional('SLIPWAY_BACKUP_RECIPIENT', ageRecipient)
  const cron = read('SLIPWAY_BACKUP_SCHEDULE', '0 3 * * *', cronExpression)
  const keep = read('SLIPWAY_BACKUP_KEEP', 14, whole(0, 10_000))
  const s3 = Object.freeze({
    endpoint: optional('SLIPWAY_BACKUP_S3_ENDPOINT', origin),
    region: read('SLIPWAY_BACKUP_S3_REGION', 'us-east-1', text),
    accessKeyId: optional('SLIPWAY_BACKUP_S3_ACCESS_KEY_ID', text),
    secretAccessKey: optional('SLIPWAY_BACKUP_S3_SECRET_ACCESS_KEY', (value) => ({ value: new Secret(value) })),
  })
  if (to !== undefined && recipient === undefined)
    problems.push(
      'SLIPWAY_BACKUP_TO needs SLIPWAY_BACKUP_RECIPIENT: backups by schedule are encrypted for a public key.',
    )
  if (to?.startsWith('s3:') === true && (s3.accessKeyId === undefined || s3.secretAccessKey === undefined))
    problems.push(
      'SLIPWAY_BACKUP_TO needs SLIPWAY_BACKUP_S3_ACCESS_KEY_ID and SLIPWAY_BACKUP_S3_SECRET_ACCESS_KEY for a bucket.',
    )
  return Object.freeze({ to, recipient, cron, keep, s3 })
}

/** How the work is done, and how much of it. */
const readWork = (reader: Reader, range: PortRange) => {
  const { read, optional } = reader
  const concurrency = whole(1, 1000)
  return {
    /** Limits of one organization; 0 disables a limit. */
    limits: readLimits(read, range),
    /** How much of what has ended is kept. */
    keeping: readKeeping(read),
    /** Megabytes to keep free on the disks of the engine and of the data directory; 0 disables the reserve. */
    diskReserveMb: read('SLIPWAY_DISK_RESERVE_MB', 2048, whole(0, 1_000_000_000)),
    /** Percent of a machine's memory that may be promised to its running services; 0: any. */
    memoryOvercommit: read('SLIPWAY_MEMORY_OVERCOMMIT', 0, whole(0, 100_000)),
    /** How long events of the audit log are kept; 0: forever. */
    auditDays: read('SLIPWAY_AUDIT_DAYS', usualAuditDays, whole(0, 36_500)),
    statusVocabulary: read('SLIPWAY_STATUS_VOCABULARY', 'auto', oneOf(vocabularies)),
    buildConcurrency: read('SLIPWAY_BUILD_CONCURRENCY', cores, concurrency),
    /** A DNS resolver for builds; if undefined, the engine's own. */
    buildDns: optional('SLIPWAY_BUILD_DNS', address),
    deployConcurrency: read('SLIPWAY_DEPLOY_CONCURRENCY', 2 * cores, concurrency),
    /** Whether a service with storage needs a cluster whose engine limits the size of volumes. */
    volumeSizes: read('SLIPWAY_VOLUME_SIZES', 'auto', oneOf(volumeSizeModes)),
    /** How long a deployment waits for an engine that does not answer. */
    engineWaitSeconds: read('SLIPWAY_ENGINE_WAIT_SECONDS', 120, whole(1, 3600)),
    gitPollSeconds: read('SLIPWAY_GIT_POLL_SECONDS', 60, whole(0, 86_400)),
    imagePollSeconds: read('SLIPWAY_IMAGE_POLL_SECONDS', 300, whole(0, 86_400)),
    /** How long an environment of a pull request is kept without a push. */
    previewHours: read('SLIPWAY_PREVIEW_HOURS', 168, whole(1, 8760)),
    /** How long a service with a minimum of 0 has no request before it sleeps; 0: it never does. */
    sleepAfterSeconds: read('SLIPWAY_SLEEP_AFTER_SECONDS', 300, whole(0, 86_400)),
    /** After how many days orphans of a cluster are removed; 0: never automatically. */
    orphanDays: read('SLIPWAY_ORPHANS_REMOVE_AFTER_DAYS', 0, whole(0, 3650)),
    /** How long the instances of a service are too busy, or not busy enough, before there are more, or fewer. */
    scaleUpSeconds: read('SLIPWAY_SCALE_UP_SECONDS', 30, whole(1, 3600)),
    scaleDownSeconds: read('SLIPWAY_SCALE_DOWN_SECONDS', 300, whole(1, 3600)),
    /** Limits for reading a repository for a build and sending its files. */
    preparation: readPreparation(read),
    gitMemoryMb: read('SLIPWAY_GIT_MEMORY_MB', 1024, whole(256, 1_000_000)),
    /** Size limit of one push to a repository on this server. */
    pushMaxMb: read('SLIPWAY_PUSH_MAX_MB', 200, whole(1, 100_000)),
    /** Programs that terraform services run, by path; if undefined, found on PATH. */
    tools: Object.freeze({
      tofu: optional('SLIPWAY_TOFU', path),
      terraform: optional('SLIPWAY_TERRAFORM', path),
      helm: optional('SLIPWAY_HELM', path),
    }),
    /** For services on Kubernetes clusters: the user of their programs, and how their hosts are published. */
    kubernetes: Object.freeze({
      runAs: optional('SLIPWAY_KUBERNETES_RUN_AS', whole(1, 2_147_483_647)),
      ingressClass: optional('SLIPWAY_KUBERNETES_INGRESS_CLASS', objectName),
      certIssuer: optional('SLIPWAY_KUBERNETES_CERT_ISSUER', objectName),
      /** Their ingresses have certificates for all hosts. */
      ingressTls: read('SLIPWAY_KUBERNETES_INGRESS_TLS', false, onOff),
      argoNamespace: read('SLIPWAY_KUBERNETES_ARGOCD_NAMESPACE', 'argocd', objectName),
    }),
    /** The modules of clusters at cloud providers; undefined: none. */
    clusterModules: optional('SLIPWAY_CLUSTER_MODULES', clusterModulesAt),
    /** The modules of databases in MANAGED mode; undefined: none. */
    databaseModules: optional('SLIPWAY_DATABASE_MODULES', databaseModulesAt),
    imageMaxMb: read('SLIPWAY_IMAGE_MAX_MB', 10_240, whole(1, 1_000_000)),
    /** Names of images that may replace the public registry's, if the operator loaded them into the engine; or `*`. */
    engineImages: read<readonly string[]>('SLIPWAY_ENGINE_IMAGES', officialImages, imageNames),
    /** Sockets of engines on this machine that a cluster may name. */
    engineSockets: read<readonly string[]>('SLIPWAY_ENGINE_SOCKETS', Object.freeze([]), socketPaths),
    /** As Docker's own tools read it; undefined means the local socket. */
    dockerHost: optional('DOCKER_HOST', dockerHost),
    logLevel: read('SLIPWAY_LOG_LEVEL', 'info', oneOf(logLevels)),
    /** Seconds before each attempt to deliver an event, counted from the attempt before. */
    webhookSchedule: read<readonly number[]>('SLIPWAY_WEBHOOK_SCHEDULE', Object.freeze(defaultSchedule), schedule),
    /** Whose JWTs are accepted; if undefined, none are. */
    oidc: readOidc(reader),
  }
}

export type Settings = ReturnType<typeof readPlaces> &
  ReturnType<typeof readWork> & { ownBackups: ReturnType<typeof readOwnBackups> }

/** Only the programs that back up and restore have it: it is never stored on the server. */
const passphraseName = 'SLIPWAY_BACKUP_PASSPHRASE'

/**
 * Throws `SettingsError` with every problem. Unknown names that begin with SLIPWAY_ become warnings; in the file, every
 * unknown name is a problem.
 */
export const parseSettings = (
  env: Environment,
  file: InFile = new Map(),
): { settings: Settings; warnings: string[] } => {
  const reader = createReader(env, file)
  const { names, problems } = reader
  names.add('SLIPWAY_DATA_DIR')
  if (!file.has(passphraseName)) names.add(passphraseName)
  const places = readPlaces(reader, env, file)
  const settings: Settings = { ...places, ...readWork(reader, places.portRange), ownBackups: readOwnBackups(reader) }
  if (settings.routerPort === settings.port && settings.routerHost === settings.host)
    problems.push('SLIPWAY_ROUTER_PORT must differ from SLIPWAY_PORT.')
  const isGiven = (name: string): boolean => (env[name] ?? file.get(name)?.value ?? '').trim() !== ''
  const all = [...problems, ...refuseTls(settings, isGiven), ...refuseEngine(settings), ...refuseUnknown(file, names)]
  if (all.length > 0) throw new SettingsError(all)
  const publicUrl = settings.publicUrl ?? addressOfApi(settings)
  return { settings: Object.freeze({ ...settings, publicUrl }), warnings: warnOfUnknown(env, names) }
}

/** The settings of this process. Throws `SettingsError` with every problem. */
export const loadSettings = (): { settings: Settings; warnings: string[] } => {
  const file = loadSettingsFile(dataDirOf(process.env))
  const loaded = parseSettings(process.env, file)
  for (const name of engineNames) {
    const inFile = file.get(name)
    if (inFile !== undefined) process.env[name] ??= inFile.value
  }
  return loaded
}

/** The same; prints their errors on standard error and exits with code 2. */
export const readSettings = (): Settings => {
  try {
    const { settings, warnings } = loadSettings()
    for (const warning of warnings) process.stderr.write(`${warning}\n`)
    return settings
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error
    process.stderr.write(`${error.message}\n`)
    return process.exit(2)
  }
}
