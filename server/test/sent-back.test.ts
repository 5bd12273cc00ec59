/**
 * Clients change a record by sending all of it back, as they read it. Every record that can be read and changed accepts
 * that, wherever it was read, and is unchanged afterwards.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Operation } from '../src/api/operations/operation.ts'
import { operations } from '../src/resources/index.ts'
import type { Values } from './cases/case.ts'
import { type Json, startApi } from './support/api.ts'
import { addressOf, newScene, valuesFor } from './support/scene.ts'

const api = await startApi()

/** Records that cannot be sent back as they were read, by the operation that changes them, with the reason. */
const reasons: Readonly<Record<string, string>> = {
  editAccountInformation: 'a token has no account',
  editOrganizationMemberRole: 'it is told which member gets which role',
  editRoutingTable: 'the list is called `results` where it is read, and `routes` where it is sent',
}

const placeOf = ({ projectId }: Values) => ({ parent_id: projectId!, scope: 'PROJECT' })

const collectionOf = (path: string): string => path.replace(/\/\{\w+\}$/, '')

const reads = new Map(operations.filter(({ method }) => method === 'GET').map((each) => [each.path, each]))

/** Where the record that an operation changes is read: at its own path, or in the list that it is of. */
const readOf = ({ path }: Operation): Operation | undefined => reads.get(path) ?? reads.get(collectionOf(path))

const changes = operations.filter(
  (each) => each.method === 'PUT' && each.body !== undefined && readOf(each) !== undefined,
)

const read = async (change: Operation, values: Values): Promise<Json> => {
  const from = readOf(change)!
  const { status, body } = await api.call(
    'GET',
    addressOf(from.path, values, from.id === 'listVariables' ? placeOf(values) : {}),
  )
  assert.equal(status, 200, from.id)
  if (from.path === change.path) return body
  const id = values[/\{(\w+)\}$/.exec(change.path)![1]!]
  if (body.results === undefined) return body
  return body.results.find((record: Json) => record.id === id) ?? assert.fail(`${from.id} has no ${id}`)
}

/** What every change updates; a backup storage is tried once more. */
const updated = new Set(['updated_at', 'last_updated_by', 'checked_at'])

const lasting = (record: Json): string =>
  JSON.stringify(record, (name, value) => (updated.has(name) ? undefined : value))

for (const change of changes)
  test(`${change.id} accepts the record as it was read, and changes nothing`, {
    skip: reasons[change.id] ?? false,
  }, async () => {
    const values = await valuesFor(change, newScene(api))
    const before = await read(change, values)
    const { status, body } = await api.call('PUT', addressOf(change.path, values), before)
    assert.equal(status, change.status, JSON.stringify(body))
    assert.deepEqual(JSON.parse(lasting(await read(change, values))), JSON.parse(lasting(before)))
  })
