/**
 * Secrets of external managers in deployments: the values that a service gets, when they are read again, and the
 * message of a failure.
 */
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { jwtVerify } from 'jose'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { hostileKey } from '../../../test/support/tls/hostile-key.ts'
import { until } from '../../../test/support/until.ts'
import { signAws } from '../../lib/net/aws-signature.ts'

const keys = { accessKey: 'AKIDEXAMPLE', secretKey: 'canary-of-the-access-key' }
const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const account = {
  type: 'service_account',
  client_email: 'reader@project.iam.gserviceaccount.com',
  private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  private_key_id: 'key-1',
  // Untrusted.
  token_uri: 'http://169.254.169.254/token',
}

/** All secrets of the managers, by region or project and name. */
const secrets = new Map<string, string | Buffer>()
const asked: string[] = []
/** The response to the next requests instead. */
let trouble: ((res: ServerResponse) => void) | null = null

const send = (res: ServerResponse, status: number, body: object): void =>
  void res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))

const isSigned = (req: IncomingMessage, body: string, region: string, service: string): boolean => {
  const date = String(req.headers['x-amz-date'])
  const now = new Date(date.replace(/^(....)(..)(..)T(..)(..)(..)Z$/, '$1-$2-$3T$4:$5:$6Z'))
  const { 'content-type': type, 'x-amz-target': target } = req.headers as Record<string, string>
  const url = new URL(`http://${req.headers.host}/`)
  const headers = { 'content-type': type!, 'x-amz-target': target! }
  const wanted = signAws({ method: 'POST', url, headers, body, region, service }, keys, now)
  return Math.abs(now.getTime() - Date.now()) < 300_000 && wanted.authorization === req.headers.authorization
}

const answerAws = (req: IncomingMessage, body: string): [status: number, fields: object] => {
  const [, region = '', service = ''] = /Credential=\w+\/\d{8}\/([\w-]+)\/(\w+)\/aws4_request/.exec(
    req.headers.authorization ?? '',
  )!
  const wanted = { secretsmanager: 'secretsmanager.GetSecretValue', ssm: 'AmazonSSM.GetParameter' }[service]
  assert.equal(req.headers['x-amz-target'], wanted)
  if (!isSigned(req, body, region, service))
    return [400, { __type: 'UnrecognizedClientException', message: 'canary-of-the-manager' }]
  const { SecretId, Name } = JSON.parse(body) as Record<string, string>
  const value = secrets.get(`${region} ${SecretId ?? Name}`)
  if (value === undefined) return [400, { __type: 'com.amazonaws#ResourceNotFoundException' }]
  if (SecretId === undefined) return [200, { Parameter: { Value: value } }]
  return [200, typeof value === 'string' ? { SecretString: value } : { SecretBinary: value.toString('base64') }]
}

const answerToken = async (res: ServerResponse, body: string): Promise<void> => {
  const form = new URLSearchParams(body)
  assert.equal(form.get('grant_type'), 'urn:ietf:params:oauth:grant-type:jwt-bearer')
  const audience = 'https://oauth2.googleapis.com/token'
  const { payload } = await jwtVerify(form.get('assertion')!, publicKey, { audience, issuer: account.client_email })
  assert.equal(payload.scope, 'https://www.googleapis.com/auth/cloud-platform')
  send(res, 200, { access_token: 'canary-of-the-token', expires_in: 3599 })
}

const answer = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
  let body = ''
  for await (const chunk of req) body += chunk
  asked.push(`${req.method} ${req.url}`)
  if (trouble !== null) return trouble(res)
  if (req.url === '/token') return answerToken(res, body)
  if (req.url === '/') return send(res, ...answerAws(req, body))
  if (req.headers.authorization !== 'Bearer canary-of-the-token') return send(res, 401, {})
  const value = secrets.get(req.url!)
  if (value === undefined) return send(res, 404, { error: { status: 'NOT_FOUND' } })
  send(res, 200, { payload: { data: Buffer.from(value).toString('base64') } })
}

const manager = createServer((req, res) => void answer(req, res).catch(() => res.destroy())).listen(0, '127.0.0.1')
await once(manager, 'listening')
const { port } = manager.address() as AddressInfo
after(() => {
  manager.close()
  manager.closeAllConnections()
})

const hosts = new Set<string>()
const api = await startApi({
  secretManagers: (host) => {
    hosts.add(host)
    return `http://127.0.0.1:${port}`
  },
})
const { call } = api

const post = async (path: string, body: object, status = 201): Promise<Json> => {
  const { status: found, body: made } = await call('POST', path, body)
  assert.equal(found, status, JSON.stringify(made))
  return made
}

const inAws = { mode: 'AWS_SECRET_MANAGER', region: 'eu-west-3' }
const inStore = { mode: 'AWS_PARAMETER_STORE', region: 'us-gov-west-1' }
const inGoogle = { mode: 'GCP_SECRET_MANAGER', region: 'europe-west9', project_id: 'project-1' }
const withKeys = {
  mode: 'AWS_STATIC_CREDENTIALS',
  region: 'eu-west-3',
  access_key: keys.accessKey,
  secret_key: keys.secretKey,
}
const withAccount = { mode: 'GCP_JSON_CREDENTIALS', json_credentials: JSON.stringify(account) }

let made = 0
const newAccess = async (endpoint: Json, authentication: Json): Promise<string> => {
  made += 1
  const accesses = [{ name: `vault ${made}`, endpoint, authentication }]
  const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
  const body = { name: `cluster ${made}`, ...ours, secret_manager_accesses: accesses }
  return (await post(`/organization/${api.organizationId}/cluster`, body)).secret_manager_accesses[0].id
}

interface Scene {
  environmentId: string
  id: string
}

const newScene = async (): Promise<Scene> => {
  const { environmentId } = await newPlace(api)
  return { environmentId, id: (await newApplication(api, environmentId, { name: 'web' })).id }
}

const refer = (scene: Scene, key: string, value: string, access: string, more: Json = {}): Promise<Json> =>
  post('/variable', {
    ...{ key, value, is_secret: false, secret_manager_access_id: access },
    ...{ variable_scope: 'APPLICATION', variable_parent_id: scene.id },
    ...more,
  })

const settle = async ({ environmentId, id }: Scene, path = `/application/${id}/deploy`): Promise<Json> => {
  await post(path, {}, 202)
  const isOver = async () =>
    /^(DEPLOYED|.*_ERROR)$/.test((await call('GET', `/environment/${environmentId}/status`)).body.state)
  await until(isOver, { what: 'the end of the deployment' })
  return (await call('GET', `/application/${id}/deploymentHistoryV2`)).body.results[0]
}

/** The workload that runs now. */
const workloadOf = async ({ environmentId, id }: Scene) => {
  const release = await api.database.query<{ current: string }>(
    'select current_release_id as current from service_state where service_id = $1',
    [id],
  )
  const seen = await api.runtime.observe([{ environmentId, serviceId: id }])
  const { openRelease } = await import('../../deployments/release/releases.ts')
  const opened = await openRelease(api.database, api.parts.sealer, release[0]!.current)
  const { env, files } = opened!.environment
  return { env, files, revision: seen[0]?.revision }
}

const stateOf = async ({ id }: Scene): Promise<string> =>
  (await call('GET', `/application/${id}/status`)).body.service_deployment_status

test('a deployment gets the values of AWS and Google secrets, as variables and files, and every text of them is a secret', async () => {
  const scene = await newScene()
  const [aws, store, google] = [
    await newAccess(inAws, withKeys),
    await newAccess(inStore, withKeys),
    await newAccess(inGoogle, withAccount),
  ]
  secrets.set('eu-west-3 app/token', 'canary-aws')
  secrets.set('eu-west-3 app/file', Buffer.from('canary-file\nsecond line'))
  secrets.set('us-gov-west-1 /app/parameter', 'canary-parameter')
  secrets.set('/v1/projects/project-1/secrets/global/versions/latest:access', 'canary-global')
  secrets.set('/v1/projects/project-1/locations/europe-west9/secrets/regional/versions/3:access', 'canary-regional')
  await refer(scene, 'AWS', 'app/token', aws)
  await refer(scene, 'FILE', 'app/file', aws, { mount_path: '/etc/secret' })
  await refer(scene, 'PARAMETER', '/app/parameter', store, { is_secret: true })
  await refer(scene, 'GLOBAL', 'global', google)
  await refer(scene, 'REGIONAL', 'regional/versions/3', google)
  await post(`/application/${scene.id}/environmentVariable`, { key: 'URL', value: 'x://{{AWS}}@host' })
  const entry = await settle(scene)
  assert.equal(entry.status, 'DEPLOYED', JSON.stringify(entry))
  const { env, files } = await workloadOf(scene)
  const { AWS, FILE, PARAMETER, GLOBAL, REGIONAL, URL: url } = env
  assert.deepEqual(
    [AWS, FILE, PARAMETER, GLOBAL, REGIONAL, url],
    ['canary-aws', '/etc/secret', 'canary-parameter', 'canary-global', 'canary-regional', 'x://canary-aws@host'],
  )
  assert.deepEqual(files, [{ path: '/etc/secret', content: 'canary-file\nsecond line' }])
  assert.deepEqual([...hosts].sort(), [
    'oauth2.googleapis.com',
    'secretmanager.europe-west9.rep.googleapis.com',
    'secretmanager.googleapis.com',
    'secretsmanager.eu-west-3.amazonaws.com',
    'ssm.us-gov-west-1.amazonaws.com',
  ])
  assert.equal(asked.filter((each) => each === 'POST /token').length, 1)
  // Its values are only in the sealed release.
  const lists = [
    `/application/${scene.id}/environmentVariable`,
    `/application/${scene.id}/secret`,
    `/variable?parent_id=${scene.id}&scope=APPLICATION`,
    `/application/${scene.id}/deploymentHistoryV2`,
    `/environment/${scene.environmentId}/logs`,
    `/application/${scene.id}/release`,
  ]
  const shown = await Promise.all(lists.map(async (path) => JSON.stringify((await call('GET', path)).body)))
  assert.doesNotMatch(shown.join(), /canary/)
  const [open] = await api.database.query<{ text: string }>(
    `select coalesce(jsonb_agg(to_jsonb(s)), '[]')::text || (select coalesce(jsonb_agg(to_jsonb(r)), '[]')::text from release r)
       || (select coalesce(jsonb_agg(to_jsonb(v)), '[]')::text from variable v) as text from deployment_step s`,
    [],
  )
  assert.doesNotMatch(open!.text, /canary/)
})

test('a value that changed in the manager rolls out with the next deploy; nothing else reads it', async () => {
  const scene = await newScene()
  const access = await newAccess(inAws, withKeys)
  secrets.set('eu-west-3 rotated', 'canary-before')
  const { id } = await refer(scene, 'TOKEN', 'rotated', access)
  await settle(scene)
  assert.equal(await stateOf(scene), 'UP_TO_DATE')
  const before = await workloadOf(scene)
  const whole = `/environment/${scene.environmentId}/deploy`
  await settle(scene, whole)
  assert.equal((await workloadOf(scene)).revision, before.revision, 'skipped: nothing has changed')

  secrets.set('eu-west-3 rotated', 'canary-after')
  asked.length = 0
  assert.equal(await stateOf(scene), 'UP_TO_DATE')
  const plan = (await call('POST', `${whole}?dry_run=true`, {})).body
  assert.deepEqual(asked, [], 'a status and a plan ask no manager')
  assert.doesNotMatch(JSON.stringify(plan), /TOKEN|canary/)
  await post(`/application/${scene.id}/restart-service`, {}, 202)
  const isBack = async () => (await workloadOf(scene)).revision !== before.revision
  await until(isBack, { what: 'the restart' })
  assert.equal((await workloadOf(scene)).env.TOKEN, 'canary-before', 'a restart has what was frozen')
  assert.deepEqual(asked, [])
  await until(
    async () =>
      /^(RESTARTED|RUNNING|DEPLOYED)$/.test(
        (await call('GET', `/environment/${scene.environmentId}/status`)).body.state,
      ),
    {
      what: 'the end of the restart',
    },
  )
  await settle(scene, whole)
  assert.equal((await workloadOf(scene)).env.TOKEN, 'canary-after')

  // Another reference, or another manager, is another configuration.
  const edited = await call('PUT', `/variable/${id}`, {
    key: 'TOKEN',
    secret_manager_access_id: await newAccess(inAws, withKeys),
  })
  assert.equal(edited.status, 200)
  assert.equal(await stateOf(scene), 'OUT_OF_DATE')
})

test('a value that cannot be read fails the deployment with the variable, the manager and the reason; the old version serves', async () => {
  const scene = await newScene()
  const access = await newAccess(inAws, withKeys)
  secrets.set('eu-west-3 good', 'canary-good')
  await refer(scene, 'TOKEN', 'good', access)
  await settle(scene)
  const before = await workloadOf(scene)
  const google = await newAccess(inGoogle, withAccount)
  const cases: [why: RegExp, value: string, access: string, around?: (res: ServerResponse) => void][] = [
    [/it has no secret of this name\.$/, 'missing', access],
    [
      /it does not accept the credentials of the access\.$/,
      'good',
      await newAccess(inAws, { ...withKeys, secret_key: 'other' }),
    ],
    [
      /its credentials may not read this secret\.$/,
      'good',
      access,
      (res) => send(res, 400, { __type: 'AccessDeniedException' }),
    ],
    [/\(HTTP 503\)\.$/, 'good', access, (res) => send(res, 503, {})],
    [/the connection was closed before an answer came/, 'good', access, (res) => void res.destroy()],
    [
      /its answer is larger than a secret can be\.$/,
      'good',
      access,
      (res) => send(res, 200, { SecretString: 'x'.repeat(600_000) }),
    ],
    [
      /the value is larger than 64 KiB\.$/,
      'good',
      access,
      (res) => send(res, 200, { SecretString: 'x'.repeat(70_000) }),
    ],
    [/the value is not a text\.$/, 'good', access, (res) => send(res, 200, { SecretString: 'canary\0' })],
    [/the value is not a text\.$/, 'good', access, (res) => send(res, 200, { SecretBinary: '/w==' })],
    [/it refused the request/, 'good', access, (res) => send(res, 200, { SecretString: { canary: 1 } })],
    [/it refused the request \(HTTP 302\)/, 'good', access, (res) => void res.writeHead(302, { location: '/x' }).end()],
    [
      /its region is not one of AWS\.$/,
      'good',
      await newAccess({ ...inAws, region: 'eu-west-3.evil.example/' }, withKeys),
    ],
    [/the reference is not the name of a secret/, '../../x', google],
    [/it has no secret of this name\.$/, 'missing', google],
    [
      /are not the JSON key of a service account\.$/,
      'x',
      await newAccess(inGoogle, { ...withAccount, json_credentials: 'canary' }),
    ],
    [
      /are not the JSON key of a service account\.$/,
      'x',
      await newAccess(inGoogle, {
        ...withAccount,
        json_credentials: JSON.stringify({ ...account, private_key: hostileKey(257, 257, 700) }),
      }),
    ],
  ]
  for (const [why, value, by, around = null] of cases) {
    await refer(scene, 'TOKEN', value, by)
    trouble = around
    const entry = await settle(scene)
    trouble = null
    assert.match(
      entry.error.message,
      /^TOKEN: the value cannot be read from the secret manager "vault \d+" \((AWS|Google)/,
    )
    assert.match(entry.error.message, why)
    assert.doesNotMatch(JSON.stringify(entry), /canary/)
    assert.equal((await workloadOf(scene)).revision, before.revision)
  }
})

test('credentials of one kind of manager are refused for another', async () => {
  const refused = async (endpoint: Json, authentication: Json) => {
    const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
    const accesses = [{ name: 'wrong', endpoint, authentication }]
    const body = { name: 'refused', ...ours, secret_manager_accesses: accesses }
    const { status, body: told } = await call('POST', `/organization/${api.organizationId}/cluster`, body)
    return [status, told.details?.[0].field]
  }
  const field = '/secret_manager_accesses/0/authentication/mode'
  assert.deepEqual(await refused(inGoogle, withKeys), [400, field])
  assert.deepEqual(await refused(inStore, withAccount), [400, field])
})
