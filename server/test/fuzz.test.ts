/**
 * Ten thousand requests made from the published document, with a fixed seed, over rows of every kind. Every
 * response is quick, has a status that the operation documents and never 5xx, and an error has the common error body. A
 * deleted record is gone for every operation.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { Pool } from 'undici'
import { describe } from '../src/api/operations/openapi.ts'
import type { Operation } from '../src/api/operations/operation.ts'
import { operations } from '../src/resources/index.ts'
import type { Values } from './cases/case.ts'
import { type Json, startApi } from './support/api.ts'
import { type FuzzRequest, fuzzRequests } from './support/fuzz-requests.ts'
import { howMany } from './support/nightly.ts'
import { addressOf, caseOf, madeParams, newScene, paramsOf, valuesFor } from './support/scene.ts'
import { until } from './support/until.ts'

const total = howMany(3000, 10_000)
const atOnce = 6
const places = 5

const api = await startApi()
const other = await api.newOrganization()
const document = describe(operations) as Json
const pool = new Pool(api.url, { connections: atOnce })
after(() => pool.close())

const ids = new Map<string, string[]>()
const note = (values: Values): void => {
  for (const [name, id] of Object.entries(values)) ids.set(name, [...(ids.get(name) ?? []), id])
}

/** Rows of every kind that a path can name: from the makers, and from the cases of paths that these do not fill. */
const prepare = async (): Promise<void> => {
  for (let place = 0; place < places; place += 1) {
    const scene = newScene(api)
    const values: Values = {}
    for (const param of madeParams) await scene.need(values, param)
    note(values)
  }
  for (const operation of operations)
    if (paramsOf(operation.path).some((param) => !ids.has(param)) && operation.method !== 'DELETE') {
      const scene = newScene(api)
      const values = await valuesFor(operation, scene)
      note(values)
      await caseOf(operation).after?.(values, scene)
    }
}

interface Sent extends FuzzRequest {
  operation: string
  documented: Json
}

const isEndless = ({ responses }: Json): boolean =>
  responses['101'] !== undefined || responses['200']?.content?.['text/event-stream'] !== undefined

// Deletes come last, or the others would find nothing; our own organization, with our token, is kept.
const isDeletion = (path: string, method: string): boolean => method === 'delete' || path.endsWith('/service/delete')
const ownEnd = 'DELETE /organization/{organizationId}'

const requestsOf = (): Sent[] => {
  const request = fuzzRequests(document, ids)
  const withoutUs = fuzzRequests(document, new Map([...ids, ['organizationId', [other.id]]]))
  const all = Object.entries<Json>(document.paths)
    .flatMap(([path, methods]) => Object.entries<Json>(methods).map(([method, each]) => ({ path, method, each })))
    .filter(({ each }) => !isEndless(each))
  const ordered = [
    ...all.filter(({ path, method }) => !isDeletion(path, method)),
    ...all.filter(({ path, method }) => isDeletion(path, method)),
  ]
  const perOperation = Math.ceil(total / ordered.length)
  return ordered.flatMap(({ path, method, each }, index) => {
    const make = `${method.toUpperCase()} ${path}` === ownEnd ? withoutUs : request
    const seed = 20_261_121 + index
    return fc
      .sample(make(path, method, each), { seed, numRuns: perOperation })
      .filter((sent) => sent.method !== 'DELETE' || sent.path !== `/organization/${api.organizationId}`)
      .map((sent) => ({ ...sent, operation: each.operationId, documented: each.responses }))
  })
}

/** Sends a request unchanged, with a path that a client would otherwise correct. */
const send = async ({ method, path, body, headers }: FuzzRequest) => {
  const text = body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body)
  const answer = await pool.request({
    method: method as 'GET',
    path,
    body: text,
    headers: {
      authorization: `Token ${api.token}`,
      ...(text === null ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
  })
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
}

const checkError = (status: number, id: unknown, text: string, what: string): void => {
  const body = JSON.parse(text) as Json
  for (const field of ['error', 'message', 'detail', 'code', 'request_id'])
    assert.equal(typeof body[field], 'string', `${what}: ${field}`)
  assert.equal(body.status, status, what)
  assert.equal(body.request_id, id, what)
  if (status === 400) assert.doesNotMatch(body.message, /\bexists?\b/, what)
}

/** What is wrong with the response to a request; null if nothing is. Records whether it was accepted. */
const judge = async (sent: Sent, taken: Map<number, number>): Promise<string | null> => {
  const started = performance.now()
  const { status, headers, text } = await send(sent)
  const what = `${sent.method} ${sent.path} ${JSON.stringify(sent.body)?.slice(0, 400)} ${JSON.stringify(sent.headers)} → ${status}`
  taken.set(status, (taken.get(status) ?? 0) + 1)
  if (performance.now() - started > 5000) return `${what} took too long`
  if (status >= 500) return `${what} ${text}`
  if (!(status in sent.documented)) return `${what}, which is not documented: ${text.slice(0, 300)}`
  if (status < 400) return null
  try {
    checkError(status, headers['x-request-id'], text, what)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

test(`${total} requests made from the document, right and wrong, get documented answers, and none takes 5 s`, async (t) => {
  await prepare()
  const waiting = requestsOf()
  assert.ok(waiting.length >= total - 50)
  const taken = new Map<number, number>()
  // One of each operation: the next is most likely the same.
  const problems = new Map<string, string>()
  const started = performance.now()
  let next = 0
  const work = async (): Promise<void> => {
    while (next < waiting.length) {
      const sent = waiting[next++]!
      const problem = await judge(sent, taken)
      if (problem !== null) problems.set(sent.operation, problem)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  const counts = [...taken].sort(([a], [b]) => a - b).map(([status, count]) => `${status}: ${count}`)
  t.diagnostic(`${counts.join(', ')} in ${Math.round(performance.now() - started)} ms`)
  assert.deepEqual([...problems.values()], [])
  const accepted = [...taken].reduce((sum, [status, count]) => sum + (status < 400 ? count : 0), 0)
  assert.ok(accepted > total / 8, `only ${accepted} requests were accepted: the others tell little`)
  assert.ok((taken.get(404) ?? 0) < total / 2, 'half of the requests found nothing: they tell little')
})

/** The operation that deletes the row that its path ends with. */
const deletions = operations.filter(
  ({ method, path, owner }) => method === 'DELETE' && owner.param !== null && path.endsWith(`{${owner.param}}`),
)

const isGone = async (operation: Operation, values: Values): Promise<boolean> =>
  (await api.call(operation.method, addressOf(operation.path, values), undefined)).status === 404

test('a deleted record is gone for every operation that could name it', async () => {
  const skipped = new Set(['organizationId', 'clusterId'])
  for (const deletion of deletions.filter(({ owner }) => !skipped.has(owner.param!))) {
    const scene = newScene(api)
    const values = await valuesFor(deletion, scene)
    const param = deletion.owner.param!
    const answer = await api.call('DELETE', addressOf(deletion.path, values))
    assert.equal(answer.status, 204, `${deletion.id}: ${JSON.stringify(answer.body)}`)
    await until(() => isGone(deletion, values), { what: `the end of ${deletion.path}`, timeoutMs: 20_000 })
    for (const operation of operations) {
      if (operation.owner.param !== param || operation.owner.kind !== deletion.owner.kind) continue
      if (operation.owner.inQuery === true || paramsOf(operation.path).some((name) => values[name] === undefined))
        continue
      assert.ok(await isGone(operation, values), `${operation.id} after ${deletion.id}`)
    }
  }
})
