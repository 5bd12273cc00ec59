import assert from 'node:assert/strict'
import { test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { newId } from '../../lib/ids.ts'
import { resourcesIn } from './resources.ts'

const provider = 'provider["registry.opentofu.org/hashicorp/aws"]'

const state = JSON.stringify({
  version: 4,
  outputs: { password: { value: 'canary-output' } },
  resources: [
    {
      mode: 'managed',
      type: 'aws_s3_bucket',
      name: 'files',
      provider,
      instances: [
        { index_key: 0, attributes: { id: 'files-0', arn: 'arn:0', policy: 'canary-policy', tags: { a: 'canary' } } },
        {
          index_key: 'b',
          attributes: { id: 'files-b', name: 'canary-marked' },
          sensitive_attributes: [[{ type: 'get_attr', value: 'name' }]],
        },
      ],
    },
    {
      module: 'module.db',
      mode: 'data',
      type: 'aws_region',
      name: 'here',
      provider,
      instances: [{ attributes: { name: 'eu' } }],
    },
    {
      mode: 'managed',
      type: 'random_password',
      name: 'root',
      provider,
      instances: [{ attributes: { id: 'canary-id', result: 'canary-result' } }],
    },
    { type: 7, instances: 'none' },
    null,
  ].filter((each) => each !== null),
})

test('a state lists its resources by address, and none of its secrets', async () => {
  const id = newId()
  const found = await resourcesIn(state, id, '2026-01-01T00:00:00.000Z', 'x')
  assert.deepEqual(
    found.map(({ address, mode, attributes }) => [address, mode, attributes]),
    [
      ['aws_s3_bucket.files[0]', 'managed', { id: 'files-0', arn: 'arn:0' }],
      ['aws_s3_bucket.files["b"]', 'managed', { id: 'files-b' }],
      ['module.db.data.aws_region.here', 'data', { name: 'eu' }],
      ['random_password.root', 'managed', {}],
    ],
  )
  assert.equal(found[0]!.provider, 'registry.opentofu.org/hashicorp/aws')
  assert.equal(new Set(found.map((each) => each.id)).size, found.length)
  assert.doesNotMatch(JSON.stringify(found), /canary/)
})

test('a text that is not a state lists nothing', async () => {
  for (const text of ['', 'null', '[]', '{"resources":"x"}', '{"resources":[{"type":"a","name":"b"}]}'])
    assert.deepEqual(await resourcesIn(text, newId(), '', 'x'), [], text)
})

test('a large state is parsed in a thread, and one that is too large is not listed', async (t) => {
  const longest = longestParsed(t)
  const list = (values: number) => {
    const text = `{"more":[${'{},'.repeat(values)}{}],${state.slice(1)}`
    return resourcesIn(text, newId(), '2026-01-01T00:00:00.000Z', 'x')
  }
  assert.equal((await list(500_000)).length, 4)
  await assert.rejects(async () => list(4_000_000), { code: 'state_too_large' })
  assert.ok(longest() < 2 * state.length, 'only what is shown comes back')
})
