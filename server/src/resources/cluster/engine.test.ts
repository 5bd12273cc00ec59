/** A second machine: credentials that name a Docker engine, and the cluster that runs there. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import ssh2 from 'ssh2'
import { type Json, newApplication, startApi } from '../../../test/support/api.ts'
import {
  type CertificateAuthority,
  createAuthority,
  opensslIsMissing,
} from '../../../test/support/peers/certificates.ts'
import { hostileKey } from '../../../test/support/tls/hostile-key.ts'
import { until } from '../../../test/support/until.ts'
import type { EngineFacts, Engines } from '../../clusters/engines.ts'
import { noBuilder } from '../../clusters/no-runtime.ts'
import { engineUnavailable } from '../../lib/docker/docker-engine.ts'
import type { EngineConnection } from '../../lib/docker/engine-connection.ts'
import { SshError } from '../../lib/docker/ssh-tunnel.ts'
import { newId } from '../../lib/ids.ts'
import { OutboundRefused } from '../../lib/net/outbound-errors.ts'
import { usualLimits } from '../../limits/limits.ts'
import { createFakeRuntime, type FakeRuntime } from '../../runtimes/fake/fake.ts'

const facts = (id: string, more: Partial<EngineFacts> = {}): EngineFacts => ({
  id,
  version: '20.10.24',
  apiVersion: '1.41',
  os: 'linux',
  architecture: 'amd64',
  ...more,
})

const fail = (code: string): Error => engineUnavailable(Object.assign(new Error(code), { code }))

const noImages = { builder: noBuilder, clear: async () => {} }

/** The engine at each host, or the error instead. */
const hosts = new Map<string, EngineFacts | Error>()
const runtimes = new Map<string, FakeRuntime>()
const closed: string[] = []

const hostOf = (connection: EngineConnection): string =>
  connection.kind === 'local' ? connection.socketPath : connection.host

const at = (connection: EngineConnection): EngineFacts => {
  const found = hosts.get(hostOf(connection))
  if (found === undefined) throw fail('ENOTFOUND')
  if (found instanceof Error) throw found
  return found
}

const engines: Engines = {
  identify: async (connection) => at(connection),
  ownId: async () => 'own',
  sockets: ['/run/second.sock'],
  async pin(address) {
    if (address.startsWith('169.254.')) throw new OutboundRefused('it leads to a link-local address')
    return { address: address.replace(/^\[(.*)\]$/, '$1') }
  },
  open({ clusterId, connection }) {
    const runtime = createFakeRuntime({ ownerId: newId() })
    runtimes.set(clusterId, runtime)
    const close = async () => {
      closed.push(clusterId)
      await runtime.close()
    }
    return { ...noImages, runtime: { ...runtime, ping: async () => void at(connection), close } }
  },
}

const api = await startApi({ engines })
const { call, organizationId } = api
const base = `/organization/${organizationId}`
const key = ssh2.utils.generateKeyPairSync('ed25519')
const overSsh = { engine_ssh_key: key.private, engine_ssh_host_keys: `engine ${key.public}` }

let made = 0
const credentialsOf = async (body: Json, send = call, organization = organizationId): Promise<Json> => {
  made += 1
  const path = `/organization/${organization}/onPremise/credentials`
  return send('POST', path, { name: `machine ${made}`, ...body })
}

const addHost = (found: EngineFacts | Error = facts(`engine ${newId()}`)): string => {
  const host = `host-${hosts.size}.example`
  hosts.set(host, found)
  return host
}

const engineAt = async (host: string, send = call, organization = organizationId): Promise<string> => {
  const answer = await credentialsOf({ engine_url: `ssh://deploy@${host}`, ...overSsh }, send, organization)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body.id
}

const own = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
const naming = (id: string) => ({ cloud_provider_credentials: { credentials: { id } } })

const newCluster = (credentialsId: string, more: Json = {}, send = call, organization = organizationId) => {
  made += 1
  const body = { name: `cluster ${made}`, ...own, ...naming(credentialsId), ...more }
  return send('POST', `/organization/${organization}/cluster`, body)
}

const newEnvironment = async (clusterId: string): Promise<string> => {
  made += 1
  const project = await call('POST', `${base}/project`, { name: `project ${made}` })
  const body = { name: 'production', cluster: clusterId }
  return (await call('POST', `/project/${project.body.id}/environment`, body)).body.id
}

const reason = ({ status, body }: Json): string => `${status} ${body.details?.[0]?.field ?? body.code} ${body.message}`

test('a cluster with credentials of an engine is deployed there, shows its version, and goes when it is deleted', async () => {
  const credentialsId = await engineAt(addHost())
  const cluster = await newCluster(credentialsId)
  assert.equal(cluster.status, 201, JSON.stringify(cluster.body))
  const { id } = cluster.body
  const path = `${base}/cluster/${id}`
  assert.deepEqual([cluster.body.status, cluster.body.version], ['DEPLOYED', '20.10.24'])
  const status = (await call('GET', `${path}/status`)).body
  assert.deepEqual([status.status, status.is_deployed, status.error_message], ['DEPLOYED', true, undefined])
  assert.equal((await call('GET', `${path}/isReady`)).body.is_ready, true)
  assert.equal((await call('POST', `${path}/deploy`)).status, 201)
  assert.equal((await call('POST', `${path}/stop`)).status, 409)
  await until(async () => (await call('GET', path)).body.cpu !== undefined, { what: 'its capacity to be known' })

  const environmentId = await newEnvironment(id)
  const application = await newApplication(api, environmentId)
  assert.equal((await call('POST', `/application/${application.id}/deploy`)).status, 202)
  const state = async () => (await call('GET', `/application/${application.id}/status`)).body.state
  await until(async () => (await state()) === 'RUNNING', { what: 'the application to run' })
  const [instance] = await runtimes.get(id)!.observe()
  assert.equal(instance?.serviceId, application.id)
  assert.deepEqual(await api.runtime.observe([{ environmentId, serviceId: application.id }]), [])

  assert.equal((await call('DELETE', path)).body.code, 'cluster_in_use')
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await call('GET', `/environment/${environmentId}`)).status === 404, { what: 'the end' })
  assert.deepEqual(await runtimes.get(id)!.observe(), [])
  assert.equal((await call('DELETE', `${base}/onPremise/credentials/${credentialsId}`)).body.code, 'credentials_in_use')
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => !api.parts.clusters.all().some((each) => each.key === id), { what: 'it to be let go' })
  assert.equal((await call('DELETE', `${base}/onPremise/credentials/${credentialsId}`)).status, 204)
})

test('an engine that cannot be used is refused by a sentence, and nothing is kept', async () => {
  const before = (await call('GET', `${base}/onPremise/credentials`)).body.results.length
  const cases: [EngineFacts | Error, RegExp][] = [
    [fail('ECONNREFUSED'), /connection was refused/],
    [fail('CERT_HAS_EXPIRED'), /has expired/],
    [engineUnavailable(new SshError('host-key', 'x')), /SSH host key is not one of those given/],
    [engineUnavailable(new SshError('login', 'x')), /refused the login/],
    [
      engineUnavailable(new OutboundRefused('it leads to a private address')),
      /This address cannot be used: it leads to a private address\.$/,
    ],
    [facts('old', { apiVersion: '1.40', version: '19.03' }), /19\.03 is too old/],
    [facts('windows', { os: 'windows' }), /Linux containers/],
    [facts('mips', { architecture: 'mips64' }), /neither amd64 nor arm64/],
    [facts('own'), /engine of this server/],
  ]
  for (const [found, expected] of cases) {
    const answer = await credentialsOf({ engine_url: `ssh://deploy@${addHost(found)}`, ...overSsh })
    assert.match(reason(answer), expected)
    assert.match(reason(answer), /^400 \/engine_url/)
  }
  assert.equal((await call('GET', `${base}/onPremise/credentials`)).body.results.length, before)
})

test('what the fields of an engine lack, or hold in vain, is said by name', async () => {
  const engine_url = `ssh://deploy@${addHost()}`
  const cases: [Json, RegExp][] = [
    [{ engine_url: 'http://x' }, /^400 \/engine_url .*must be tcp/],
    [{ engine_url: 'ssh://host.example' }, /^400 \/engine_url/],
    [{ engine_url: 'tcp://user@host.example' }, /^400 \/engine_url/],
    [{ engine_url: 'ssh://%@host.example', ...overSsh }, /^400 \/engine_url/],
    [{ engine_url: 'unix:///run/../x.sock' }, /^400 \/engine_url/],
    [{ engine_url, engine_ssh_key: key.private }, /^400 \/engine_ssh_host_keys .*required/],
    [{ engine_url, ...overSsh, engine_ssh_key: 'canary' }, /^400 \/engine_ssh_key .*not a private SSH key/],
    [{ engine_url, ...overSsh, engine_ssh_key: key.public }, /^400 \/engine_ssh_key .*public key/],
    [
      { engine_url, ...overSsh, engine_ssh_key: hostileKey(257, 257, 700) },
      /^400 \/engine_ssh_key .*is not used, because/,
    ],
    [{ engine_url, ...overSsh, engine_ssh_host_keys: 'no keys' }, /^400 \/engine_ssh_host_keys/],
    [{ engine_url, ...overSsh, engine_ca_certificate: 'x' }, /^400 \/engine_ca_certificate .*not used/],
    [{ ...overSsh }, /^400 \/engine_ssh_key .*requires `engine_url`/],
    [{ engine_url, ...overSsh, engine_service_address: 'engine.example' }, /^400 \/engine_service_address/],
    [{ engine_url, ...overSsh, engine_service_address: 'fd00::1' }, /^400 \/engine_service_address .*IPv4/],
    [{ engine_url: 'ssh://deploy@[fd00::1]', ...overSsh }, /^400 \/engine_service_address .*is required/],
    [{ engine_url, ...overSsh, engine_service_address: '169.254.1.1' }, /^400 \/engine_service_address .*link-local/],
    [{ engine_url: 'unix:///var/run/docker.sock' }, /^400 \/engine_url .*SLIPWAY_ENGINE_SOCKETS/],
  ]
  for (const [body, expected] of cases) assert.match(reason(await credentialsOf(body)), expected)
})

test('a socket of this machine takes the operator, who has listed it', async () => {
  hosts.set('/run/second.sock', facts('second'))
  const admin = api.as(await api.newToken(['Admin']))
  assert.equal((await credentialsOf({ engine_url: 'unix:///run/second.sock' }, admin)).status, 403)
  const kept = await credentialsOf({ engine_url: 'unix:///run/second.sock' })
  assert.equal(kept.status, 201, JSON.stringify(kept.body))
  assert.equal((await newCluster(kept.body.id)).body.status, 'DEPLOYED')
})

test('an engine is one cluster of one organization', async () => {
  const host = addHost()
  const first = await newCluster(await engineAt(host))
  assert.equal(first.status, 201)
  assert.equal(reason(await newCluster(await engineAt(host))).slice(0, 17), '409 engine_in_use')
  const stranger = await api.newOrganization()
  const theirs = api.as(stranger.token)
  const credentialsId = await engineAt(host, theirs, stranger.id)
  assert.equal((await newCluster(credentialsId, {}, theirs, stranger.id)).body.code, 'engine_in_use')
  // Nor by moving another cluster there.
  const own = await newCluster(await engineAt(addHost(), theirs, stranger.id), {}, theirs, stranger.id)
  const path = `/organization/${stranger.id}/cluster/${own.body.id}`
  assert.equal((await theirs('PUT', path, naming(credentialsId))).body.code, 'engine_in_use')
  const info = { credentials: { id: credentialsId } }
  assert.equal((await theirs('POST', `${path}/cloudProviderInfo`, info)).body.code, 'engine_in_use')
  assert.equal((await call('DELETE', `${base}/cluster/${first.body.id}`)).status, 204)
  assert.equal((await theirs('PUT', path, naming(credentialsId))).status, 200)
})

test('an organization connects as many engines as the operator allows, by whichever way', async () => {
  const { id: organization, token } = await api.newOrganization()
  const send = api.as(token)
  const create = async () => newCluster(await engineAt(addHost(), send, organization), {}, send, organization)
  const clusters: Json[] = []
  for (let each = 0; each < usualLimits.engines; each += 1) clusters.push(await create())
  assert.deepEqual([...new Set(clusters.map(({ status }) => status))], [201])
  const refused = await create()
  assert.equal(reason(refused).slice(0, 17), '409 limit_reached')
  assert.match(refused.body.message, /^The limit is 10 Docker engines .*SLIPWAY_LIMIT_ENGINES\.$/)
  // Nor by changing credentials to name an engine after their cluster was created.
  const plain = await credentialsOf({}, send, organization)
  assert.equal((await newCluster(plain.body.id, {}, send, organization)).status, 201)
  const path = `/organization/${organization}/onPremise/credentials/${plain.body.id}`
  const edit = () => send('PUT', path, { name: 'late', engine_url: `ssh://deploy@${late}`, ...overSsh })
  const late = addHost()
  assert.equal((await edit()).body.code, 'limit_reached')
  const { results } = (await send('GET', `/organization/${organization}/limits`)).body
  const { limit, used } = results.find(({ name }: Json) => name === 'ENGINES')
  assert.deepEqual([limit, used], [10, 10])
  assert.equal((await send('DELETE', `/organization/${organization}/cluster/${clusters[0]!.body.id}`)).status, 204)
  assert.equal((await edit()).status, 200)
})

test('a cluster with environments keeps its engine as long as that answers', async () => {
  const host = addHost()
  const credentialsId = await engineAt(host)
  const { id } = (await newCluster(credentialsId)).body
  const path = `${base}/onPremise/credentials/${credentialsId}`
  const elsewhere = { engine_url: `ssh://deploy@${addHost()}` }
  const environmentId = await newEnvironment(id)
  assert.equal((await call('PUT', path, elsewhere)).body.code, 'cluster_in_use')
  assert.equal((await call('PUT', path, { engine_url: '' })).body.code, 'cluster_in_use')
  assert.equal(
    (await call('PUT', `${base}/cluster/${id}`, naming(await engineAt(addHost())))).body.code,
    'cluster_in_use',
  )
  assert.equal((await call('PUT', path, { name: 'another name' })).status, 200)
  const other = ssh2.utils.generateKeyPairSync('ed25519')
  const before = await api.parts.clusters.of(id)
  assert.equal((await call('PUT', path, { engine_ssh_key: other.private })).status, 200)
  await until(async () => (await api.parts.clusters.of(id)) !== before, { what: 'the new key to be used' })

  hosts.set(host, engineUnavailable(new SshError('login', 'x')))
  const status = (await call('GET', `${base}/cluster/${id}/status`)).body
  assert.equal(status.status, 'INVALID_CREDENTIALS')
  assert.match(status.error_message, /refused the login/)
  hosts.set(host, fail('ECONNREFUSED'))
  assert.equal((await call('GET', `${base}/cluster/${id}/status`)).body.status, 'DEPLOYMENT_ERROR')
  // The machine is lost: the cluster moves to another one.
  assert.equal((await call('PUT', path, elsewhere)).status, 200)
  await until(async () => (await call('GET', `${base}/cluster/${id}/status`)).body.status === 'DEPLOYED', {
    what: 'the other machine to be the cluster',
  })
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await call('GET', `/environment/${environmentId}`)).status === 404, { what: 'the end' })
  assert.equal((await call('PUT', path, { engine_url: '' })).status, 200)
  await until(async () => !(await api.parts.clusters.of(id)).isConnected, { what: 'the engine to be let go' })
  const [kept] = await api.database.query<{ sealed: object }>('select sealed from node where id = $1', [credentialsId])
  assert.deepEqual(kept!.sealed, {})
  assert.equal((await call('GET', `${base}/cluster/${id}/status`)).body.status, 'READY')
})

test('credentials of an engine fit no cluster that it cannot be, and take an Admin', async () => {
  const credentialsId = await engineAt(addHost())
  assert.match(reason(await newCluster(credentialsId, { kubernetes: 'MANAGED' })), /^400 .*SELF_MANAGED/)
  assert.match(reason(await newCluster(credentialsId, { cloud_provider: 'HETZNER' })), /^400 .*ON_PREMISE/)
  assert.match(
    reason(await call('PUT', `${base}/cluster/${api.clusterId}`, naming(credentialsId))),
    /^400 .*default cluster/,
  )
  const writer = api.as(await api.newToken(['Write']))
  assert.equal((await newCluster(credentialsId, {}, writer)).status, 403)
})

test('keys are sealed and answered nowhere', { skip: opensslIsMissing }, async (t) => {
  const authority: CertificateAuthority = await createAuthority()
  t.after(() => authority.close())
  const client = await authority.sign()
  const body = {
    engine_url: `tcp://${addHost()}:2376`,
    engine_ca_certificate: authority.ca,
    engine_client_certificate: client.cert,
    engine_client_key: client.key,
    engine_service_address: '10.9.8.7',
  }
  const stranger = await authority.sign()
  assert.match(
    reason(await credentialsOf({ ...body, engine_client_key: stranger.key })),
    /engine_client_key .*does not belong to/,
  )
  assert.match(
    reason(await credentialsOf({ ...body, engine_client_key: hostileKey(257, 257, 700) })),
    /engine_client_key .*is not used: its/,
  )
  assert.match(
    reason(await credentialsOf({ ...body, engine_ca_certificate: 'x' })),
    /engine_ca_certificate .*is not a certificate/,
  )
  const answer = await credentialsOf(body)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  const { engine_client_key: _, ...shown } = body
  const { id, name: __, created_at: ___, updated_at: ____, ...rest } = answer.body
  assert.deepEqual(rest, { object_type: 'OTHER', ...shown })
  const told = [
    answer.body,
    (await call('GET', `${base}/onPremise/credentials/${id}`)).body,
    (await call('GET', `${base}/onPremise/credentials`)).body,
    (await call('GET', `${base}/credentials`)).body,
    await api.database.query('select spec, sealed from node'),
    await api.database.query('select change from event'),
  ]
  const secretLine = client.key.split('\n')[1]!
  for (const each of [secretLine, key.private.split('\n')[1]!]) assert.ok(!JSON.stringify(told).includes(each))
})

after(() => assert.ok(closed.length > 0))
