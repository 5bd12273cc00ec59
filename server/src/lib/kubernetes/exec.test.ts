/** Running a command in a pod: the output that is kept, and the result when the other side misbehaves. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import type { Executed } from './exec.ts'
import { createKubernetesApi, type ExecCommand } from './kubernetes-api.ts'
import { KubernetesError } from './kubernetes-errors.ts'

const path = '/api/v1/namespaces/one/pods/web/exec'
const command: ExecCommand = { container: 'main', words: ['cat', 'a b&c'], maxBytes: 10 }

const start = async (t: TestContext) => {
  const cluster = await startMemoryCluster()
  const api = createKubernetesApi(cluster.access(), async () => ({ address: '127.0.0.1' }))
  t.after(async () => {
    await api.close()
    await cluster.close()
  })
  cluster.store.put({ kind: 'Pod', metadata: { name: 'web', namespace: 'one' } } as never)
  return { cluster, api }
}

const refusalOf = (work: Promise<Executed>): Promise<KubernetesError> =>
  work.then(
    () => assert.fail('it was run'),
    (error: unknown) => {
      assert.ok(error instanceof KubernetesError, String(error))
      return error
    },
  )

test('a command is run with its words as they are, and all that it writes comes back with its exit code', async (t) => {
  const { cluster, api } = await start(t)
  const asked: (readonly string[])[] = []
  for (const exitCode of [0, 3, 137]) {
    cluster.exec = (_pod, words) => {
      asked.push(words)
      return { pieces: ['12', '', '3\u00e4', '\n'], exitCode }
    }
    const { output, exitCode: found } = await api.exec(path, command)
    assert.deepEqual([output.toString(), found], ['123\u00e4\n', exitCode])
  }
  assert.deepEqual(asked, [command.words, command.words, command.words])
})

test('more than the limit, an end before the end, a refusal and silence are errors, and nothing of them is kept', async (t) => {
  const { cluster, api } = await start(t)
  cluster.exec = () => ({ pieces: ['x'.repeat(6), 'x'.repeat(5)], exitCode: 0 })
  assert.match((await refusalOf(api.exec(path, command))).message, /more than it may/)
  cluster.exec = () => ({ pieces: ['half'], exitCode: null })
  assert.match((await refusalOf(api.exec(path, command))).message, /did not run a command/)
  assert.equal((await refusalOf(api.exec(path.replace('web', 'other'), command))).status, 403)
  const stranger = createKubernetesApi({ ...cluster.access(), token: undefined }, async () => ({
    address: '127.0.0.1',
  }))
  assert.equal((await refusalOf(stranger.exec(path, command))).status, 403)
  await stranger.close()
  const left = new AbortController()
  const reason = new Error('left')
  left.abort(reason)
  await assert.rejects(api.exec(path, command, { signal: left.signal }), reason)
})
