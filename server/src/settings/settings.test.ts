import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import test from 'node:test'
import { inspect } from 'node:util'
import { usualKeeping } from '../limits/keeping.ts'
import { usualLimits } from '../limits/limits.ts'
import { SettingsError } from './file.ts'
import { parseSettings, type Settings } from './settings.ts'

const problemsOf = (env: Record<string, string>): readonly string[] => {
  try {
    parseSettings(env)
    return []
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    return error.problems
  }
}

test('an empty environment gives the documented defaults', () => {
  const { settings, warnings } = parseSettings({})
  assert.ok(settings.engineImages.includes('postgres') && !settings.engineImages.includes('*'))
  assert.deepEqual(settings, {
    host: '127.0.0.1',
    port: 8080,
    routerHost: '127.0.0.1',
    routerPort: 8000,
    routerTlsPort: undefined,
    routerProcesses: { least: 1, most: Math.min(availableParallelism(), 8) },
    hstsSeconds: 0,
    domain: undefined,
    apiHost: undefined,
    acme: {
      directory: 'https://acme-v02.api.letsencrypt.org/directory',
      email: undefined,
      eab: undefined,
      ca: undefined,
      challenge: 'http-01',
      dns: undefined,
    },
    portRange: { first: 30_000, last: 32_767 },
    extraPorts: [],
    databasePort: undefined,
    dataDir: resolve('.slipway'),
    databaseUrl: undefined,
    adminToken: undefined,
    docker: true,
    sample: true,
    backupFolder: resolve('.slipway/backups'),
    masterKeyFile: resolve('.slipway/keys/master'),
    outboundAllow: [],
    ownBackups: {
      to: undefined,
      recipient: undefined,
      cron: '0 3 * * *',
      keep: 14,
      s3: { endpoint: undefined, region: 'us-east-1', accessKeyId: undefined, secretAccessKey: undefined },
    },
    rateLimit: 600,
    failedLoginLimit: 30,
    anonymousLimit: 6000,
    anonymousTotal: 30_000,
    metricsToken: undefined,
    trustedProxies: [],
    corsOrigins: [],
    consoleUrl: undefined,
    publicUrl: undefined,
    limits: usualLimits,
    keeping: usualKeeping,
    diskReserveMb: 2048,
    memoryOvercommit: 0,
    auditDays: 400,
    statusVocabulary: 'auto',
    buildConcurrency: availableParallelism(),
    buildDns: undefined,
    deployConcurrency: 2 * availableParallelism(),
    volumeSizes: 'auto',
    engineWaitSeconds: 120,
    gitPollSeconds: 60,
    imagePollSeconds: 300,
    previewHours: 168,
    sleepAfterSeconds: 300,
    orphanDays: 0,
    scaleUpSeconds: 30,
    scaleDownSeconds: 300,
    preparation: {
      contextBytes: 500 * 2 ** 20,
      contextEntries: 100_000,
      dockerfileBytes: 256 * 1024,
      ignoreFileBytes: 64 * 1024,
      readMs: 60_000,
      contextMs: 600_000,
    },
    gitMemoryMb: 1024,
    pushMaxMb: 200,
    tools: { tofu: undefined, terraform: undefined, helm: undefined },
    kubernetes: {
      runAs: undefined,
      ingressClass: undefined,
      certIssuer: undefined,
      ingressTls: false,
      argoNamespace: 'argocd',
    },
    clusterModules: undefined,
    databaseModules: undefined,
    imageMaxMb: 10_240,
    engineImages: settings.engineImages,
    engineSockets: [],
    dockerHost: undefined,
    logLevel: 'info',
    webhookSchedule: [0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400],
    oidc: undefined,
  })
  assert.deepEqual(warnings, [])
})

const good: [Record<string, string>, Partial<Settings>][] = [
  [
    { SLIPWAY_HOST: '0.0.0.0', SLIPWAY_PORT: '80' },
    { host: '0.0.0.0', port: 80 },
  ],
  [{ SLIPWAY_PORT: '' }, { port: 8080 }],
  [
    { SLIPWAY_ROUTER_HOST: '::', SLIPWAY_ROUTER_PORT: '9' },
    { routerHost: '::', routerPort: 9 },
  ],
  [{ SLIPWAY_DOMAIN: 'Apps.Bücher.example.' }, { domain: 'apps.xn--bcher-kva.example' }],
  [
    { SLIPWAY_ROUTER_TLS_PORT: '443', SLIPWAY_HSTS_SECONDS: '300', SLIPWAY_API_HOST: 'api.example.org' },
    { routerTlsPort: 443, hstsSeconds: 300, apiHost: 'api.example.org' },
  ],
  [{ SLIPWAY_PORT_RANGE: '40000-40000' }, { portRange: { first: 40_000, last: 40_000 } }],
  [
    { SLIPWAY_EXTRA_PORTS: '25, 5000-5010' },
    {
      extraPorts: [
        { first: 25, last: 25 },
        { first: 5000, last: 5010 },
      ],
    },
  ],
  [{ DATABASE_URL: 'postgresql://a@localhost/b' }, { databasePort: 5432 }],
  [{ DATABASE_URL: 'postgresql://a@127.0.0.1:5433/b' }, { databasePort: 5433 }],
  [{ DATABASE_URL: 'postgresql://a@db.example:5433/b' }, { databasePort: undefined }],
  [
    { SLIPWAY_DATA_DIR: '/data' },
    { dataDir: '/data', masterKeyFile: '/data/keys/master', backupFolder: '/data/backups' },
  ],
  [{ SLIPWAY_BACKUP_FOLDER: '/a/b' }, { backupFolder: '/a/b' }],
  [{ SLIPWAY_MASTER_KEY_FILE: '/a/b' }, { masterKeyFile: '/a/b' }],
  [{ DATABASE_URL: 'postgres://u:p@db/x' }, { databaseUrl: 'postgres://u:p@db/x' }],
  [{ SLIPWAY_TRUSTED_PROXIES: '10.0.0.0/8, ::1' }, { trustedProxies: ['10.0.0.0/8', '::1'] }],
  [
    { SLIPWAY_CORS_ORIGINS: 'https://Console.example.org:443/, http://127.0.0.1:4200' },
    { corsOrigins: ['https://console.example.org', 'http://127.0.0.1:4200'] },
  ],
  [{ SLIPWAY_CONSOLE_URL: 'https://console.example.org/app/' }, { consoleUrl: 'https://console.example.org/app' }],
  [{ SLIPWAY_PUBLIC_URL: 'https://slipway.example.org/' }, { publicUrl: 'https://slipway.example.org' }],
  [
    { SLIPWAY_ROUTER_TLS_PORT: '8443', SLIPWAY_API_HOST: 'api.example.org' },
    { routerTlsPort: 8443, apiHost: 'api.example.org', publicUrl: 'https://api.example.org:8443' },
  ],
  [{ SLIPWAY_SAMPLE: 'off' }, { sample: false }],
  [{ SLIPWAY_SAMPLE: 'On' }, { sample: true }],
  [{ SLIPWAY_OUTBOUND_ALLOW: 'loopback, git.test:8080' }, { outboundAllow: ['loopback', 'git.test:8080'] }],
  [{ SLIPWAY_RATE_LIMIT: '0' }, { rateLimit: 0 }],
  [{ SLIPWAY_ROUTER_PROCESSES: '4' }, { routerProcesses: { least: 4, most: 4 } }],
  [{ SLIPWAY_ROUTER_PROCESSES: '2-6' }, { routerProcesses: { least: 2, most: 6 } }],
  [
    { SLIPWAY_LIMIT_SERVICES: '10', SLIPWAY_LIMIT_DISK_GB: '0' },
    { limits: { ...usualLimits, services: 10, diskGb: 0 } },
  ],
  [{ SLIPWAY_STATUS_VOCABULARY: 'deployment' }, { statusVocabulary: 'deployment' }],
  [{ SLIPWAY_BUILD_CONCURRENCY: '3' }, { buildConcurrency: 3 }],
  [
    { SLIPWAY_BUILD_CACHE_MB: '0', SLIPWAY_RELEASES_KEPT: '3' },
    { keeping: { ...usualKeeping, buildCacheMb: 0, releases: 3 } },
  ],
  [{ SLIPWAY_GIT_MEMORY_MB: '2048' }, { gitMemoryMb: 2048 }],
  [
    { SLIPWAY_KUBERNETES_RUN_AS: '10001', SLIPWAY_KUBERNETES_INGRESS_CLASS: 'nginx' },
    {
      kubernetes: {
        runAs: 10_001,
        ingressClass: 'nginx',
        certIssuer: undefined,
        ingressTls: false,
        argoNamespace: 'argocd',
      },
    },
  ],
  [
    { SLIPWAY_KUBERNETES_CERT_ISSUER: 'letsencrypt', SLIPWAY_KUBERNETES_INGRESS_TLS: 'on' },
    {
      kubernetes: {
        runAs: undefined,
        ingressClass: undefined,
        certIssuer: 'letsencrypt',
        ingressTls: true,
        argoNamespace: 'argocd',
      },
    },
  ],
  [
    { SLIPWAY_KUBERNETES_ARGOCD_NAMESPACE: 'gitops' },
    {
      kubernetes: {
        ...{ runAs: undefined, ingressClass: undefined, certIssuer: undefined, ingressTls: false },
        argoNamespace: 'gitops',
      },
    },
  ],
  [{ SLIPWAY_BUILD_DNS: '9.9.9.9' }, { buildDns: '9.9.9.9' }],
  [{ SLIPWAY_DISK_RESERVE_MB: '0' }, { diskReserveMb: 0 }],
  [{ SLIPWAY_MEMORY_OVERCOMMIT: '150' }, { memoryOvercommit: 150 }],
  [{ SLIPWAY_TOFU: '/opt/tofu' }, { tools: { tofu: '/opt/tofu', terraform: undefined, helm: undefined } }],
  [{ SLIPWAY_DEPLOY_CONCURRENCY: '7' }, { deployConcurrency: 7 }],
  [{ SLIPWAY_VOLUME_SIZES: 'Enforce' }, { volumeSizes: 'enforce' }],
  [{ SLIPWAY_ENGINE_WAIT_SECONDS: '20' }, { engineWaitSeconds: 20 }],
  [{ SLIPWAY_GIT_POLL_SECONDS: '0' }, { gitPollSeconds: 0 }],
  [{ SLIPWAY_IMAGE_MAX_MB: '500' }, { imageMaxMb: 500 }],
  [{ SLIPWAY_ENGINE_IMAGES: 'node:22, my-base' }, { engineImages: ['node:22', 'my-base'] }],
  [{ SLIPWAY_ENGINE_IMAGES: '*' }, { engineImages: ['*'] }],
  [{ SLIPWAY_ENGINE_SOCKETS: '/run/a.sock, /run/b.sock' }, { engineSockets: ['/run/a.sock', '/run/b.sock'] }],
  [{ DOCKER_HOST: 'unix:///run/x.sock' }, { dockerHost: 'unix:///run/x.sock', docker: true, sample: true }],
  [{ SLIPWAY_DOCKER: 'off' }, { docker: false, sample: false }],
  [{ SLIPWAY_LOG_LEVEL: 'debug' }, { logLevel: 'debug' }],
  [{ SLIPWAY_WEBHOOK_SCHEDULE: '0, 0.5,1' }, { webhookSchedule: [0, 0.5, 1] }],
  [{ SLIPWAY_OIDC_CLIENT_ID: 'console' }, { oidc: undefined }],
  [
    {
      SLIPWAY_OIDC_ISSUER: 'https://id.example/realms/x/',
      SLIPWAY_OIDC_AUDIENCE: 'api',
      SLIPWAY_OIDC_CLIENT_ID: 'console',
      SLIPWAY_OIDC_ADMIN_EMAILS: 'Boss@Example.com, second@example.com',
    },
    {
      oidc: {
        issuer: 'https://id.example/realms/x/',
        audience: ['api', 'console'],
        adminEmails: ['boss@example.com', 'second@example.com'],
        clientId: 'console',
        clientSecret: undefined,
      },
    },
  ],
]
for (const [env, expected] of good)
  test(`${JSON.stringify(env)} is understood`, () => {
    const { settings } = parseSettings(env)
    for (const [name, value] of Object.entries(expected)) assert.deepEqual(settings[name as keyof Settings], value)
  })

const bad: Record<string, string[]> = {
  SLIPWAY_HOST: ['a b', 'http://x'],
  SLIPWAY_PORT: ['0', '65536', '80a', '-1', '1.5', '0x50'],
  SLIPWAY_ROUTER_HOST: ['*'],
  SLIPWAY_ROUTER_PORT: ['nine', '8080'],
  SLIPWAY_EXTRA_PORTS: ['0', '5-4', '70000', 'a', '1-2-3'],
  SLIPWAY_PORT_RANGE: ['30000', '5-4', '0-9', '1-65536', 'a-b'],
  SLIPWAY_ROUTER_TLS_PORT: ['x', '8000'],
  SLIPWAY_DOMAIN: ['localhost', '*.example.org', 'a..example', '10.0.0.1', 'https://a.example'],
  SLIPWAY_API_HOST: ['api', 'api.example.org:443'],
  DATABASE_URL: ['mysql://x', 'db:5432', 'postgresql://['],
  SLIPWAY_ADMIN_TOKEN: ['short', 'x'.repeat(23), 'with spaces in it, and rather long', 'x'.repeat(513)],
  SLIPWAY_SAMPLE: ['maybe'],
  SLIPWAY_DOCKER: ['never'],
  SLIPWAY_OUTBOUND_ALLOW: ['10.0.0.0/99', 'a b'],
  SLIPWAY_RATE_LIMIT: ['-5', 'many'],
  SLIPWAY_FAILED_LOGIN_LIMIT: ['-5'],
  SLIPWAY_ANONYMOUS_LIMIT: ['-5'],
  SLIPWAY_ANONYMOUS_TOTAL: ['-5'],
  SLIPWAY_METRICS_TOKEN: ['short'],
  SLIPWAY_ROUTER_PROCESSES: ['0', '65', '4-2', '1-', 'many'],
  SLIPWAY_CORS_ORIGINS: [
    '*',
    'console.example.org',
    'https://a.example/path',
    'https://*.example',
    'https://u@a.example',
    'null',
  ],
  SLIPWAY_CONSOLE_URL: ['console.example.org', 'https://a.example/?x=1', 'ftp://a.example', 'https://u:p@a.example'],
  SLIPWAY_STATUS_VOCABULARY: ['other'],
  SLIPWAY_BUILD_CONCURRENCY: ['0'],
  SLIPWAY_BUILD_DNS: ['dns.example', '::1'],
  SLIPWAY_KUBERNETES_RUN_AS: ['0', 'nobody'],
  SLIPWAY_KUBERNETES_INGRESS_CLASS: ['-nginx', 'a b', 'Nginx'],
  SLIPWAY_KUBERNETES_CERT_ISSUER: ['x/y'],
  SLIPWAY_KUBERNETES_INGRESS_TLS: ['maybe'],
  SLIPWAY_KUBERNETES_ARGOCD_NAMESPACE: ['Argo', 'a/b'],
  SLIPWAY_DISK_RESERVE_MB: ['-1', 'all'],
  SLIPWAY_MEMORY_OVERCOMMIT: ['-1', '150 %'],
  SLIPWAY_DEPLOY_CONCURRENCY: ['0', 'two'],
  SLIPWAY_VOLUME_SIZES: ['record', 'on'],
  SLIPWAY_ENGINE_WAIT_SECONDS: ['0', 'long'],
  SLIPWAY_IMAGE_MAX_MB: ['0', 'much'],
  SLIPWAY_ENGINE_IMAGES: ['Node', 'team/app', 'a b', 'host.example/x'],
  DOCKER_HOST: ['docker.sock'],
  SLIPWAY_ENGINE_SOCKETS: ['docker.sock', '/run/../docker.sock'],
  SLIPWAY_LOG_LEVEL: ['loud'],
  SLIPWAY_WEBHOOK_SCHEDULE: ['1,x', ',', '-1', '99999999'],
  SLIPWAY_OIDC_ISSUER: ['id.example', 'http://id.example', 'https://u:p@id.example', 'https://id.example/?a=b'],
  SLIPWAY_OIDC_ADMIN_EMAILS: ['boss', 'a@b c@d'],
}
for (const [name, values] of Object.entries(bad))
  for (const value of values)
    test(`${name}=${value.slice(0, 40)} is refused by one sentence that names it`, () => {
      const problems = problemsOf({ [name]: value })
      assert.equal(problems.length, 1)
      assert.match(problems[0]!, new RegExp(`^${name} must .*\\.$`))
    })

test('a server without a Docker engine has no settings of one', () => {
  const names = { DOCKER_HOST: 'unix:///run/x.sock', SLIPWAY_ENGINE_SOCKETS: '/run/a.sock', SLIPWAY_SAMPLE: 'on' }
  assert.deepEqual(problemsOf({ ...names, SLIPWAY_DOCKER: 'off' }), [
    'DOCKER_HOST cannot be set together with SLIPWAY_DOCKER=off.',
    'SLIPWAY_ENGINE_SOCKETS cannot be set together with SLIPWAY_DOCKER=off.',
    'SLIPWAY_SAMPLE=on cannot be set together with SLIPWAY_DOCKER=off.',
  ])
})

test('an issuer needs an audience, and may be in clear text on this machine only', () => {
  const local = { SLIPWAY_OIDC_ISSUER: 'http://localhost:9000' }
  assert.match(problemsOf(local)[0]!, /^SLIPWAY_OIDC_AUDIENCE or SLIPWAY_OIDC_CLIENT_ID must/)
  assert.deepEqual(problemsOf({ ...local, SLIPWAY_OIDC_AUDIENCE: 'api' }), [])
})

test('settings of certificates are read with TLS, and refused without it', () => {
  const acme = {
    SLIPWAY_ACME_DIRECTORY: 'https://localhost:14000/dir',
    SLIPWAY_ACME_EMAIL: 'ops@example.org',
    SLIPWAY_ACME_EAB_KID: 'kid-1',
    SLIPWAY_ACME_EAB_HMAC: 'hush-hush-hush-hush',
    SLIPWAY_ACME_CHALLENGE: 'TLS-ALPN-01',
  }
  const { settings } = parseSettings({ ...acme, SLIPWAY_ROUTER_TLS_PORT: '443' })
  const { directory, email, eab, challenge } = settings.acme
  assert.deepEqual(
    [directory, email, eab?.kid, challenge],
    ['https://localhost:14000/dir', 'ops@example.org', 'kid-1', 'tls-alpn-01'],
  )
  assert.equal(eab?.hmacKey.reveal(), 'hush-hush-hush-hush')
  assert.doesNotMatch(inspect(settings) + JSON.stringify(settings), /hush/)
  const refused = problemsOf(acme)
  for (const [index, name] of Object.keys(acme).entries())
    assert.match(refused[index]!, new RegExp(`^${name} needs SLIPWAY_ROUTER_TLS_PORT: `))
  const alone = problemsOf({ SLIPWAY_ROUTER_TLS_PORT: '443', SLIPWAY_ACME_EAB_KID: 'kid-1' })
  assert.match(alone[0]!, /must be set together/)
  for (const [name, value] of [
    ['SLIPWAY_ACME_DIRECTORY', 'http://ca.example/dir'],
    ['SLIPWAY_ACME_EMAIL', 'a@b.example,c@d.example'],
    ['SLIPWAY_ACME_CA_FILE', '/nonexistent/ca.pem'],
    ['SLIPWAY_ACME_CHALLENGE', 'dns-01'],
  ] as const) {
    const [problem] = problemsOf({ SLIPWAY_ROUTER_TLS_PORT: '443', [name]: value })
    assert.match(problem!, new RegExp(`^${name} must be `))
  }
})

test('a DNS provider has its own credentials, all of them, and no others', () => {
  const tls = { SLIPWAY_ROUTER_TLS_PORT: '443' }
  const of = (kind: string, env: Record<string, string>) => ({ ...tls, SLIPWAY_ACME_DNS_PROVIDER: kind, ...env })
  const cloudflare = { SLIPWAY_ACME_DNS_TOKEN: 'hush-hush-hush-hush-hush' }
  const route53 = {
    SLIPWAY_ACME_DNS_ACCESS_KEY: 'AKIDEXAMPLEAKIDEXAMPLE',
    SLIPWAY_ACME_DNS_SECRET_KEY: 'hushhushhushhush',
  }
  const rfc2136 = {
    SLIPWAY_ACME_DNS_SERVER: '[2001:db8::1]:5353',
    SLIPWAY_ACME_DNS_TSIG_NAME: 'Slipway.',
    SLIPWAY_ACME_DNS_TSIG_SECRET: 'hushhushhushhush',
  }
  const dnsOf = (env: Record<string, string>) => parseSettings(env).settings.acme.dns
  const more = { SLIPWAY_ACME_DNS_ZONES: 'Shop.example, b.example', SLIPWAY_ACME_DNS_RESOLVERS: '192.0.2.1,[::1]:5353' }
  const all = [
    dnsOf(of('Cloudflare', cloudflare)),
    dnsOf(of('route53', route53)),
    dnsOf(of('rfc2136', { ...rfc2136, ...more })),
  ]
  assert.doesNotMatch(inspect(all, { depth: 5 }) + JSON.stringify(all), /hush/)
  const [first, second, third] = all
  assert.ok(first?.provider === 'cloudflare' && first.token.reveal() === cloudflare.SLIPWAY_ACME_DNS_TOKEN)
  assert.ok(second?.provider === 'route53' && second.keys.secretKey.reveal() === 'hushhushhushhush')
  assert.ok(third?.provider === 'rfc2136' && third.server.keyName === 'slipway' && third.server.port === 5353)
  assert.deepEqual(
    [third.resolvers, third.zones],
    [
      ['192.0.2.1:53', '[::1]:5353'],
      ['shop.example', 'b.example'],
    ],
  )
  const told = (env: Record<string, string>): string => problemsOf(env).join(' ')
  assert.match(told({ ...tls, ...cloudflare }), /SLIPWAY_ACME_DNS_PROVIDER must be set together/)
  assert.match(told(of('route53', {})), /SLIPWAY_ACME_DNS_ACCESS_KEY and SLIPWAY_ACME_DNS_SECRET_KEY must be set with/)
  assert.match(told(of('cloudflare', { ...cloudflare, ...route53 })), /SECRET_KEY must not be set with/)
  assert.match(told(of('bunny', cloudflare)), /^SLIPWAY_ACME_DNS_PROVIDER must be one of/)
  assert.match(told(of('rfc2136', { ...rfc2136, SLIPWAY_ACME_DNS_SERVER: 'ns:0' })), /^SLIPWAY_ACME_DNS_SERVER must be/)
  assert.match(told(of('cloudflare', { ...cloudflare, SLIPWAY_ACME_DNS_RESOLVERS: 'ns.example' })), /RESOLVERS must be/)
  assert.match(told({ SLIPWAY_ACME_DNS_PROVIDER: 'cloudflare', ...cloudflare }), /needs SLIPWAY_ROUTER_TLS_PORT/)
})

test('all problems are reported at once', () => {
  const problems = problemsOf({ SLIPWAY_PORT: 'x', SLIPWAY_SAMPLE: 'x', DATABASE_URL: 'x' })
  assert.deepEqual(
    problems.map((problem) => problem.split(' ')[0]),
    ['SLIPWAY_PORT', 'DATABASE_URL', 'SLIPWAY_SAMPLE'],
  )
})

test('no problem, warning or print of the settings repeats a secret', () => {
  const told = problemsOf({ SLIPWAY_ADMIN_TOKEN: 'hush hush', DATABASE_URL: 'mysql://u:hush@db' }).join()
  assert.doesNotMatch(told, /hush/)
  const { settings } = parseSettings({ SLIPWAY_ADMIN_TOKEN: 'hush-hush-hush-hush-hush-hush' })
  assert.equal(settings.adminToken?.reveal(), 'hush-hush-hush-hush-hush-hush')
  assert.doesNotMatch(inspect(settings) + JSON.stringify(settings), /hush/)
  const { warnings } = parseSettings({ SLIPWAY_TOKEN: 'hush' })
  assert.doesNotMatch(warnings.join(), /hush/)
})

test('an unknown SLIPWAY_ name is a warning with the nearest known name', () => {
  const { warnings } = parseSettings({ SLIPWAY_ROUTER_PROT: '1', SLIPWAY_SOMETHING_ELSE_ENTIRELY: '1', OTHER: '1' })
  assert.deepEqual(warnings, [
    'SLIPWAY_ROUTER_PROT is not a known setting and is ignored; did you mean SLIPWAY_ROUTER_PORT?',
    'SLIPWAY_SOMETHING_ELSE_ENTIRELY is not a known setting and is ignored.',
  ])
})

test('the settings cannot be changed', () => {
  const { settings } = parseSettings({ SLIPWAY_OUTBOUND_ALLOW: 'loopback' })
  for (const value of [settings, settings.outboundAllow, settings.webhookSchedule]) assert.ok(Object.isFrozen(value))
})

test('a process with a wrong environment ends with code 2 and says why', () => {
  const program = `import(${JSON.stringify(new URL('./settings.ts', import.meta.url).href)}).then((s) => s.readSettings())`
  const ended = spawnSync(process.execPath, ['-e', program], { env: { SLIPWAY_PORT: 'x' }, encoding: 'utf8' })
  assert.equal(ended.status, 2)
  assert.equal(ended.stderr, 'SLIPWAY_PORT must be a whole number between 1 and 65535.\n')
})
