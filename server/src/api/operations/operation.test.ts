import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type from 'typebox'
import { operations } from '../../resources/index.ts'
import { assertComplete, type Operation, operation, ownOrganization } from './operation.ts'
import { showsSecret } from './schema.ts'

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

const sent = (schema: unknown): string[] =>
  typeof schema !== 'object' || schema === null
    ? []
    : Object.entries(schema).flatMap(([name, inner]) => [name, ...sent(inner)])

/** The texts in a schema that have the name of a secret and no mark. */
const unmarkedIn = (schema: unknown, path = ''): string[] => {
  if (typeof schema !== 'object' || schema === null) return []
  const { type, enum: values, 'x-shown-once': isMarked } = schema as Record<string, unknown>
  const isText = type === 'string' && values === undefined
  if (isText && /(^|_)(token|secret|password|secret_url|private_key)$/.test(path) && isMarked !== true) return [path]
  return Object.entries(schema).flatMap(([name, inner]) => unmarkedIn(inner, name))
}

test('every secret that the response to a POST shows is marked as one', () => {
  const posts = operations.filter(({ method }) => method === 'POST')
  assert.deepEqual(
    posts.flatMap(({ id, body, answer }) => {
      // Values that the caller has sent are not secret to it.
      const known = new Set(sent(body))
      return unmarkedIn(answer).flatMap((name) => (known.has(name) ? [] : [`${id}: ${name}`]))
    }),
    [],
  )
  const marked = posts.filter(({ answer }) => showsSecret(answer)).map(({ id }) => id)
  assert.deepEqual(marked.sort(), [
    'createGitWebhook',
    'createOrganizationApiToken',
    'createOrganizationWebhook',
    'rotateGitWebhookSecret',
  ])
})
