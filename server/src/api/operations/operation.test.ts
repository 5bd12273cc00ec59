import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type from 'typebox'
import { operations } from '../../resources/index.ts'
import { assertComplete, type Operation, operation, ownOrganization } from './operation.ts'

const renamed = operation({
  id: 'renameThing',
  method: 'PUT',
  path: '/thing/{thingId}',
  tag: 'Things',
  summary: 'Rename a thing',
  scope: 'Deploy',
  area: 'projects',
  cluster: 'ENV_CREATOR',
  owner: ownOrganization,
  query: Type.Object({ loud: Type.Optional(Type.Boolean()) }),
  body: Type.Object({ name: Type.String() }),
  status: 200,
  answer: Type.Object({ id: Type.String(), name: Type.String() }),
  async run({ params, query, body }) {
    // @ts-expect-error the path names no such parameter
    void params.other
    // @ts-expect-error the schema has no such field
    void body.title
    const loud: boolean = query.loud ?? false
    return { id: params.thingId, name: loud ? body.name.toUpperCase() : body.name }
  },
})

const head = { ...renamed, query: undefined, body: undefined, answer: Type.Object({ id: Type.String() }) }
// @ts-expect-error an answer must be what its schema says
operation({ ...head, run: async () => ({ id: 1 }) })
test('the server does not start with an operation that leaves out what it needs', () => {
  assertComplete([...operations, renamed])
  const lacks: [string, RegExp][] = [
    ['scope', /renameThing declares no scope/],
    ['area', /renameThing declares no area/],
    ['cluster', /renameThing does not declare what it needs of a cluster/],
    ['owner', /renameThing declares no owner/],
  ]
  for (const [name, message] of lacks)
    assert.throws(() => assertComplete([{ ...renamed, [name]: undefined } as Operation]), message)
  assert.throws(() => assertComplete([renamed, renamed]), /two operations are called renameThing/)
})
