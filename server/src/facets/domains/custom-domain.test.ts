import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applicationBody, type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'
import { until } from '../../../test/support/until.ts'
import { followHosts } from '../../certificates/rows.ts'
import { newId } from '../../lib/ids.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { saveNames } from '../../store/installation.ts'
import { insertDomain } from './rows.ts'

const api = await startApi()
const { call } = api
const noNames = { domain: undefined, apiHost: undefined }
let made = 0

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

const application = async (more: object = {}): Promise<Json> =>
  newApplication(api, (await newPlace(api)).environmentId, more as Record<string, unknown>)

const newDomain = (): string => {
  made += 1
  return `www.shop-${made}.example`
}

const bring = (id: string, domain: string, status = 201): Promise<Json> =>
  sent('POST', `/application/${id}/customDomain`, { domain, generate_certificate: false }, status)

const deploy = async ({ id, environment }: Json): Promise<void> => {
  await sent('POST', `/application/${id}/deploy`, {}, 202)
  const status = async () => (await call('GET', `/environment/${environment.id}/status`)).body.state
  await until(async () => (await status()) === 'DEPLOYED', { what: 'the deployment' })
}

const routeTo = async (host: string) =>
  (await api.router.routes()).find((route) => 'host' in route && route.host === host)

test('a domain is made, read in every way, changed and taken away', async () => {
  const { id } = await application()
  const path = `/application/${id}/customDomain`
  const domain = newDomain()
  const one = await sent('POST', path, { domain: domain.toUpperCase(), generate_certificate: true, use_cdn: true }, 201)
  assert.deepEqual([one.domain, one.generate_certificate, one.use_cdn], [domain, true, true])
  assert.match(one.validation_domain, /\.localhost$/)
  assert.deepEqual(judgeAnswer('createApplicationCustomDomain', one), [])
  assert.deepEqual((await sent('GET', path, undefined, 200)).results, [one])
  assert.deepEqual(await sent('GET', `${path}/${one.id}`, undefined, 200), one)
  assert.deepEqual(await sent('GET', `${path}/${one.id}/status`, undefined, 200), one)
  const edited = await sent('PUT', `${path}/${one.id}`, { domain: newDomain(), use_cdn: false }, 200)
  assert.deepEqual([edited.use_cdn, edited.generate_certificate, edited.domain === domain], [false, true, false])
  await sent('DELETE', `${path}/${one.id}`, undefined, 204)
  await sent('GET', `${path}/${one.id}`, undefined, 404)
})

test('a domain of a running service serves at once, and ends serving at once, without a deployment', async () => {
  const service = await application()
  await deploy(service)
  const domain = newDomain()
  const { id, validation_domain: usual } = await bring(service.id, domain)
  const route = await until(() => routeTo(domain), { what: 'the route' })
  assert.deepEqual(route.targets, (await routeTo(usual))!.targets)
  assert.deepEqual([route.state, route.targets.length], ['up', 1])
  const renamed = newDomain()
  await sent('PUT', `/application/${service.id}/customDomain/${id}`, { domain: renamed }, 200)
  await until(() => routeTo(renamed), { what: 'the new name' })
  assert.equal(await routeTo(domain), undefined)
  await sent('DELETE', `/application/${service.id}/customDomain/${id}`, undefined, 204)
  await until(async () => (await routeTo(renamed)) === undefined, { what: 'the end of the route' })
  assert.ok((await routeTo(usual)) !== undefined)
})

test('a domain follows the default port, and comes back when a service gets one again', async () => {
  const service = await application()
  const domain = newDomain()
  await bring(service.id, domain)
  const portOf = async () =>
    (await api.database.query<{ port: number }>('select port from route where host = $1', [domain]))[0]?.port
  assert.equal(await portOf(), 3000)
  const put = (ports: object[]) => sent('PUT', `/application/${service.id}`, { ports }, 200)
  await put([{ internal_port: 9000, publicly_accessible: true }])
  assert.equal(await portOf(), 9000)
  await put([])
  assert.equal(await portOf(), undefined)
  const [kept] = (await sent('GET', `/application/${service.id}/customDomain`, undefined, 200)).results
  assert.deepEqual([kept.domain, 'validation_domain' in kept], [domain, false])
  await put([{ internal_port: 8000, publicly_accessible: true }])
  assert.equal(await portOf(), 8000)
})

test('links show the domain as the user’s own, beside the platform’s', async () => {
  const { id } = await application()
  const domain = newDomain()
  await bring(id, domain)
  const { results } = await sent('GET', `/application/${id}/link`, undefined, 200)
  const seen = results.map((link: Json) => [link.url.includes(domain), link.is_qovery_domain, link.is_default])
  assert.deepEqual(seen.sort(), [
    // The address of the port itself.
    [false, true, false],
    [false, true, true],
    [true, false, true],
  ])
})

test('a domain that leads to a service is 409, here and elsewhere, until it is taken away', async () => {
  const [mine, other] = [await application(), await application()]
  const domain = newDomain()
  const { id } = await bring(mine.id, domain)
  await bring(mine.id, domain, 409)
  await bring(other.id, domain.toUpperCase(), 409)
  const second = await bring(other.id, newDomain())
  await sent('PUT', `/application/${other.id}/customDomain/${second.id}`, { domain }, 409)
  await sent('DELETE', `/application/${mine.id}/customDomain/${id}`, undefined, 204)
  await bring(other.id, domain)
})

test('a name that is not a host name of a user is 400', async () => {
  const { id } = await application()
  const wrong = ['shop', '*.shop.example', 'a..example', '-a.example', '10.0.0.1', 'a b.example', 'http://a.example']
  // A URL would decode them, or end in front of the rest.
  const ofUrls = ['a%2eexample.com', 'b.example/..', 'c.example\\x', 'd.example?x', 'e.example#', 'f.example\r\nx']
  const numbers = ['127.1', '0x7f.1', '1.2.3.0x10', '[::1]', 'a.example:80', 'x@b.example', '1.1.1.1.']
  const places = ['a.example.', 'mine.localhost', 'LOCALHOST.localhost', `${'a'.repeat(64)}.example`]
  for (const domain of [...wrong, ...ofUrls, ...numbers, ...places])
    assert.match((await bring(id, domain, 400)).message, /domain/, domain)
  assert.equal((await bring(id, 'bücher.example')).domain, 'xn--bcher-kva.example')
  // The same name in another spelling is the same domain.
  for (const domain of ['XN--BCHER-KVA.example', 'BÜCHER。example', 'bü\u00adcher.example', 'ｂücher.example'])
    await bring(id, domain, 409)
  await bring(id, 'www.mine.localhost')
})

test('domains of one service that come and go at the same time are all written', async () => {
  const { id } = await application()
  const names = Array.from({ length: 12 }, newDomain)
  const made = await Promise.all(names.map((name) => bring(id, name)))
  const gone = made.slice(6)
  await Promise.all([
    ...gone.map((each) => sent('DELETE', `/application/${id}/customDomain/${each.id}`, undefined, 204)),
    ...made.slice(0, 6).map((each) => call('DELETE', `/application/${id}/customDomain/${each.id}/certificate`)),
  ])
  const routed = await api.database.query<{ host: string }>(
    'select host from route where service_id = $1 and custom_domain_id is not null',
    [id],
  )
  assert.deepEqual(routed.map(({ host }) => host).sort(), names.slice(0, 6).sort())
})

test('a wildcard serves the names of its level, where the operator allows it, and is one organization’s', async () => {
  const service = await application()
  await deploy(service)
  const path = `/application/${service.id}/customDomain`
  const refusal = async (domain: string): Promise<string> => (await bring(service.id, domain, 400)).message
  assert.match(await refusal('*.shop.example'), /need a DNS provider/)
  const { settings } = api.parts
  const names = { domain: 'apps.wild.example', apiHost: 'slipway.wild.example' }
  api.parts.settings = { ...settings, ...names, acme: { dns: { zones: ['wild.example'] } } }
  await saveNames(api.database, names)
  try {
    assert.match(await refusal('*.shop.example'), /has not allowed wildcards/)
    assert.match(await refusal('*.otherwild.example'), /has not allowed wildcards/)
    assert.match(await refusal('*.wild.example'), /uses itself/)
    assert.match(await refusal('*.x.apps.wild.example'), /assigns to services/)
    for (const wrong of ['*', '*wild.example', 'a.*.wild.example', '*.*.wild.example']) await refusal(wrong)
    const made = await bring(service.id, '*.Shop.wild.example')
    assert.equal(made.domain, '*.shop.wild.example')
    assert.deepEqual((await until(() => routeTo(made.domain), { what: 'the route' })).state, 'up')
    const { results } = await sent('GET', `/application/${service.id}/link`, undefined, 200)
    assert.ok(results.every(({ url }: Json) => !url.includes('*')))
    // Names of its level are the same organization's.
    const mine = await bring(service.id, 'www.shop.wild.example')
    const others = { ids: { id: newId(), organizationId: newId(), serviceId: service.id } }
    const insert = (domain: string) =>
      api.database.transaction((tx) =>
        insertDomain(tx, { ...others.ids, id: newId() }, { domain, generate_certificate: false, use_cdn: false }),
      )
    await assert.rejects(insert('blog.shop.wild.example'), /belongs to a wildcard/)
    await sent('DELETE', `${path}/${made.id}`, undefined, 204)
    await assert.rejects(insert('*.shop.wild.example'), /has names, of others/)
    await insert('blog.elsewhere.wild.example')
    await bring(service.id, '*.elsewhere.wild.example', 409)
    await sent('PUT', `${path}/${mine.id}`, { domain: '*.elsewhere.wild.example' }, 409)
    await api.database.query(`delete from custom_domain where organization_id = $1`, [others.ids.organizationId])
  } finally {
    await saveNames(api.database, noNames)
    api.parts.settings = settings
  }
})

test('a check finds out from the addresses of a name whether it leads here, and returns none of them', async () => {
  const addresses: Record<string, string> = {
    'here.example': '127.0.0.1',
    'there.example': '192.0.2.7',
    'cdn.example': '192.0.2.8',
  }
  const resolve = async (host: string) => {
    if (host === 'broken.example') throw Object.assign(new Error('no answer'), { code: 'EAI_AGAIN' })
    if (addresses[host] === undefined) throw Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })
    return [{ address: addresses[host] }]
  }
  api.parts.outbound = createOutbound({ allow: [], resolve })
  const { id } = await application()
  const path = `/application/${id}`
  for (const domain of ['here.example', 'there.example', 'none.example', 'broken.example', 'www.check.localhost'])
    await bring(id, domain)
  await sent('POST', `${path}/customDomain`, { domain: 'cdn.example', generate_certificate: false, use_cdn: true }, 201)
  const answer = await sent('GET', `${path}/checkCustomDomain`, undefined, 200)
  assert.deepEqual(judgeAnswer('checkApplicationCustomDomain', answer), [])
  assert.deepEqual(
    answer.results.map((one: Json) => one.status),
    [
      'MATCHES_LOAD_BALANCER_HOST',
      'DOMAIN_LINKED_TO_WRONG_HOST',
      'DOMAIN_NOT_CONFIGURED',
      'GENERIC_FAILURE',
      'MATCHES_LOAD_BALANCER_HOST',
      'RESOLVES_TO_IP',
    ],
  )
  assert.doesNotMatch(JSON.stringify(answer), /192\.0\.2|127\.0/)
})

test('a domain gets a certificate only when one is asked for, and says how far it is', async () => {
  const { id } = await application()
  const path = `/application/${id}/customDomain`
  const plain = await bring(id, newDomain())
  assert.equal(plain.certificate, null)
  const domain = newDomain()
  const asked = await sent('POST', path, { domain, generate_certificate: true }, 201)
  assert.match(asked.certificate.reason, /has no TLS/)
  const { settings } = api.parts
  const names = { domain: 'apps.example', apiHost: 'slipway.example' }
  api.parts.settings = { ...settings, routerTlsPort: 443, ...names }
  await saveNames(api.database, names)
  try {
    const { id: own } = asked
    const read = async () => (await sent('GET', `${path}/${own}/status`, undefined, 200)).certificate
    const waiting = { state: 'WAITING', expires_at: null, reason: null, next_attempt_at: null, source: 'ACME' }
    assert.deepEqual(await read(), waiting)
    const hosts = { domain: 'apps.example', apiHost: 'slipway.example', hasDns: false }
    await followHosts(api.database, hosts)
    const wanted = await api.database.query<{ host: string }>('select host from certificate order by host')
    assert.ok(wanted.some(({ host }) => host === domain) && wanted.every(({ host }) => host !== plain.domain))
    await api.database.query(
      `update certificate set problem = '{"code":"limited","message":"The CA is tired."}', order_url = 'x' where host = $1`,
      [domain],
    )
    assert.deepEqual([(await read()).state, (await read()).reason], ['ORDERING', 'The CA is tired.'])
    await api.database.query(
      `update certificate set chain = 'x', not_after = clock_timestamp() + interval '1 day' where host = $1`,
      [domain],
    )
    assert.equal((await read()).state, 'ISSUED')
    const { results } = await sent('GET', `/application/${id}/link`, undefined, 200)
    assert.equal(results.find((link: Json) => link.url.includes(domain)).certificate.state, 'ISSUED')
    // A rename starts over.
    const renamed = newDomain()
    await sent('PUT', `${path}/${own}`, { domain: renamed }, 200)
    await followHosts(api.database, hosts)
    assert.deepEqual([(await read()).state, (await read()).reason], ['WAITING', null])
    await sent('PUT', `${path}/${own}`, { generate_certificate: false }, 200)
    await followHosts(api.database, hosts)
    assert.equal(await read(), null)
    for (const taken of ['slipway.example', 'apps.example', 'x.apps.example', 'A.b.Apps.example'])
      assert.match((await bring(id, taken, 400)).message, /assigns to services/)
  } finally {
    await saveNames(api.database, noNames)
    api.parts.settings = settings
  }
})

test('services move below the operator’s domain and back, whatever domains of users are there', async () => {
  const service = await application()
  const own = newDomain()
  await bring(service.id, own)
  await bring(service.id, 'shop.base.example')
  const hostsOf = async ({ id }: Json): Promise<string[]> =>
    (
      await api.database.query<{ host: string }>('select host from route where service_id = $1 order by host', [id])
    ).map(({ host }) => host)
  const before = await hostsOf(service)
  await saveNames(api.database, { domain: 'base.example', apiHost: 'api.example' })
  try {
    const moved = before
      .filter((host) => host !== 'shop.base.example')
      .map((host) => host.replace('.localhost', '.base.example'))
    assert.deepEqual(await hostsOf(service), moved.sort())
    const fresh = await application()
    assert.ok((await hostsOf(fresh)).every((host) => host.endsWith('.base.example')))
    const { results } = await sent('GET', `/application/${fresh.id}/environmentVariable`, undefined, 200)
    assert.ok(results.some(({ value }: Json) => String(value).endsWith('.base.example')))
  } finally {
    await saveNames(api.database, noNames)
  }
  assert.deepEqual(await hostsOf(service), before)
})

test('no other organization gets a host of the settings, or a name above or below one; what it had is not served', async () => {
  const tenant = await sent('POST', '/organization', { name: 'Tenant', plan: 'FREE' }, 201)
  const mine = await application()
  const ask = api.as(await api.newToken(['Admin'], tenant.id))
  const { environmentId } = await newPlace(api, ask, tenant.id)
  const made = await ask('POST', `/environment/${environmentId}/application`, applicationBody('theirs'))
  const path = `/application/${made.body.id}`
  const add = async (domain: string) =>
    ask('POST', `${path}/customDomain`, { domain, generate_certificate: true, use_cdn: false })
  const early = ['console.platform.example', 'platform.example', 'login.platform.example']
  for (const domain of early) assert.equal((await add(domain)).status, 201, domain)
  const routed = async (): Promise<string[]> =>
    (
      await api.database.query<{ host: string }>('select host from route where host = any($1) order by host', [early])
    ).map(({ host }) => host)
  assert.equal((await routed()).length, 3)
  await saveNames(api.database, {
    ...{ domain: 'apps.platform.example', apiHost: 'api.platform.example' },
    ...{ publicUrl: 'https://slipway.platform.example:8443', consoleUrl: 'https://console.platform.example/x' },
    ...{ corsOrigins: ['https://dash.platform.example'], oidc: { issuer: 'https://login.platform.example/realm' } },
  })
  try {
    assert.deepEqual(await routed(), [])
    await followHosts(api.database, { domain: undefined, apiHost: undefined, hasDns: false })
    const ordered = await api.database.query('select host from certificate where host = any($1)', [early])
    assert.deepEqual(ordered, [])
    const { settings } = api.parts
    api.parts.settings = { ...settings, routerTlsPort: 443 }
    for (const { certificate } of (await ask('GET', `${path}/customDomain`)).body.results)
      assert.match(certificate.reason, /^The domain is not served: it must not be a name/)
    api.parts.settings = settings
    for (const { error_details } of (await ask('GET', `${path}/checkCustomDomain`)).body.results)
      assert.match(error_details, /^The domain is not served/)

    const never = ['slipway', 'console', 'api', 'apps', 'x.apps', 'Console'].map((name) => `${name}.platform.example`)
    const operators = [
      'dash.platform.example',
      'login.platform.example',
      'platform.example',
      'x.console.platform.example',
    ]
    for (const domain of [...never, ...operators]) {
      const { status, body } = await add(domain)
      assert.deepEqual([status, body.details?.[0].field], [400, '/domain'], domain)
    }
    assert.equal((await add('www.platform.example')).status, 201)
    for (const domain of never) await bring(mine.id, domain, 400)
    await ask('DELETE', path)
    await api.database.query('delete from custom_domain where domain = any($1)', [early])
    for (const domain of operators) await bring(mine.id, domain)
  } finally {
    await saveNames(api.database, noNames)
  }
})

test('a service whose name the platform takes for itself gets another one', async () => {
  const { environmentId } = await newPlace(api)
  const names = { domain: 'apps.taken.example', apiHost: undefined }
  await saveNames(api.database, names)
  try {
    const service = await newApplication(api, environmentId)
    const hosts = async (): Promise<string[]> =>
      (
        await api.database.query<{ host: string }>('select host from route where service_id = $1 order by host', [
          service.id,
        ])
      ).map(({ host }) => host)
    const before = await hosts()
    const [own] = before.filter((host) => !host.startsWith('p'))
    await saveNames(api.database, { ...names, consoleUrl: `https://${own}` })
    const after = await hosts()
    assert.equal(after.length, before.length)
    assert.ok(after.every((host) => !before.includes(host) && host.endsWith('.apps.taken.example')))
  } finally {
    await saveNames(api.database, noNames)
  }
})
