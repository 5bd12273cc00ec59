import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { createTestCa } from '../../../test/support/tls/test-ca.ts'
import { readServed } from '../../certificates/rows.ts'
import type { CustomDomain } from './rows.ts'
import { saveUpload } from './uploaded.ts'

const api = await startApi({ settings: { routerTlsPort: 443 } })
const ca = await createTestCa()
const day = 86_400_000

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await api.call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

const newDomain = async (domain: string, generate = false): Promise<{ path: string; id: string }> => {
  const { id: application } = await newApplication(api, (await newPlace(api)).environmentId, {})
  const collection = `/application/${application}/customDomain`
  const { id } = await sent('POST', collection, { domain, generate_certificate: generate }, 201)
  return { path: `${collection}/${id}`, id }
}

const put = ({ path }: { path: string }, pair: { certificate: string; key: string }, status = 200): Promise<Json> =>
  sent('PUT', `${path}/certificate`, { certificate: pair.certificate, private_key: pair.key }, status)

const servedOf = async (host: string) => (await readServed(api.database, host))[0]

test('a certificate of a user is served for its domain, said in its status, and never answered with its key', async () => {
  const host = 'www.upload.example'
  const place = await newDomain(host)
  const pair = await ca.issue(host)
  const answer = await put(place, { ...pair, certificate: `some words\n${pair.certificate}${ca.certificate}` })
  const { state, source, reason, next_attempt_at } = answer.certificate
  assert.deepEqual([state, source, reason, next_attempt_at], ['ISSUED', 'UPLOADED', null, null])
  assert.doesNotMatch(JSON.stringify(answer), /PRIVATE|BEGIN/)
  const served = (await servedOf(host))!
  assert.equal(served.chain!.match(/BEGIN CERTIFICATE/g)!.length, 2)
  assert.ok(!served.chain!.includes('some words') && !served.chainKey!.includes('BEGIN'))
  const soon = await ca.issue(host, {
    notBefore: new Date(Date.now() - 80 * day),
    notAfter: new Date(Date.now() + 3 * day),
  })
  assert.match((await put(place, soon)).certificate.reason, /expires soon/)
  assert.deepEqual((await sent('GET', `${place.path}/status`, undefined, 200)).certificate.source, 'UPLOADED')
  // It was checked for one name.
  await sent('PUT', place.path, { domain: 'other.upload.example' }, 200)
  assert.deepEqual([await servedOf(host), await servedOf('other.upload.example')], [undefined, undefined])
})

test('a certificate that was checked for a name is not kept when the domain has another by then, or is gone', async () => {
  const { id, path } = await newDomain('before.upload.example')
  await sent('PUT', path, { domain: 'after.upload.example' }, 200)
  const checked = { chain: 'c', sealedKey: 'k', notBefore: new Date(), notAfter: new Date(Date.now() + day) }
  const context = { parts: api.parts, principal: { organizationId: api.organizationId } } as Parameters<
    typeof saveUpload
  >[1]
  const save = (domain: string) =>
    api.database.transaction((tx) =>
      saveUpload(tx, context, { id, domain, certificate: null } as CustomDomain, checked),
    )
  await assert.rejects(save('before.upload.example'), { code: 'domain_changed' })
  await save('after.upload.example')
  await sent('DELETE', path, undefined, 204)
  await assert.rejects(save('after.upload.example'), { code: 'domain_changed' })
})

test('it goes before one that is ordered, which takes over when it is removed or has expired', async () => {
  const host = 'both.upload.example'
  const place = await newDomain(host, true)
  await api.database.query(
    `insert into certificate (host, organization_id, custom_domain_id, chain, chain_key, not_after)
     select $1, organization_id, id, 'ordered', 'sealed', clock_timestamp() + interval '1 day' from custom_domain where id = $2`,
    [host, place.id],
  )
  const tableOf = async () => (await servedOf(host))?.table
  const sourceOf = async () => (await sent('GET', place.path, undefined, 200)).certificate.source
  await put(place, await ca.issue(host))
  assert.deepEqual([await tableOf(), await sourceOf()], ['uploaded_certificate', 'UPLOADED'])
  await api.database.query(`update uploaded_certificate set not_after = clock_timestamp() where host = $1`, [host])
  assert.deepEqual([await tableOf(), await sourceOf()], ['certificate', 'ACME'])
  await put(place, await ca.issue(host))
  await sent('DELETE', `${place.path}/certificate`, undefined, 204)
  await sent('DELETE', `${place.path}/certificate`, undefined, 204)
  assert.deepEqual([await tableOf(), await sourceOf()], ['certificate', 'ACME'])
})

test('what cannot be served for the domain is refused with the reason', async () => {
  const host = 'bad.upload.example'
  const place = await newDomain(host)
  const pair = await ca.issue(host)
  const stranger = await createTestCa()
  const now = Date.now()
  const life = (from: number, to: number) => ({
    notBefore: new Date(now + from * day),
    notAfter: new Date(now + to * day),
  })
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 1024 })
  const cases: [{ certificate: string; key: string }, RegExp][] = [
    [await ca.issue('elsewhere.example'), /for another host/],
    [{ ...pair, key: (await ca.issue(host)).key }, /belongs to another certificate/],
    [{ ...pair, key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })) }, /1024 bits/],
    [{ ...pair, key: 'none' }, /cannot be read as a PEM key/],
    [{ ...pair, certificate: 'none' }, /cannot be read as a chain/],
    [{ ...pair, certificate: ca.certificate + pair.certificate }, /belongs to another certificate/],
    [{ ...pair, certificate: pair.certificate + pair.certificate }, /has not issued number 1/],
    [{ ...pair, certificate: pair.certificate + stranger.certificate }, /not signed by number 2|has not issued/],
    [await ca.issue(host, life(-3, -1)), /expired at/],
    [await ca.issue(host, life(1, 3)), /not valid before/],
  ]
  for (const [each, why] of cases) assert.match((await put(place, each, 400)).message, why)
  assert.equal(await servedOf(host), undefined)
  const { settings } = api.parts
  api.parts.settings = { ...settings, routerTlsPort: undefined }
  assert.match((await put(place, pair, 400)).message, /has no TLS/)
  api.parts.settings = settings
})
