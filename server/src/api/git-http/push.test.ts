import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import { until } from '../../../test/support/until.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { type PushRequest, runPush } from './push.ts'

test('a client that does not read is sent nothing more until it does, however long the log is', async () => {
  const lines = Array.from({ length: 100 }, (_, index) => ({ text: `line ${index}` }))
  const seen = { state: 'SUCCEEDED', isOpen: false, serviceState: 'DEPLOYED', reason: null, ahead: 0 }
  const query = async (sql: string, [, , after]: unknown[]) => {
    if (!sql.includes('deployment_log')) return [seen]
    return after === '0' ? [{ id: '1', lines }] : []
  }
  const accepted = { deploymentId: 'd', executionId: 'd-1', createdAt: '' }
  const written: string[] = []
  const waiting: (() => void)[] = []
  const never = new AbortController().signal
  const pushing = runPush(
    standIn<PushRequest>({
      parts: { database: { query }, clock: systemClock },
      receive: async () => ({ accepted, head: { commitId: 'c', reason: null } }),
      application: { id: 'a', branch: 'main' },
      commands: [{ from: '', to: '', name: 'refs/heads/main' }],
      capabilities: new Set(['side-band-64k', 'report-status']),
      write: (bytes: Buffer) => void written.push(bytes.toString()),
      room: () => new Promise<void>((resolve) => waiting.push(resolve)),
      ...{ gone: never, ending: never },
    }),
  )
  for (let told = 1; told <= lines.length; told += 1) {
    await until(() => waiting.length > 0, { what: `line ${told}` })
    assert.equal(written.filter((text) => text.includes('line ')).length, told)
    waiting.shift()!()
  }
  await pushing
  assert.match(written.join(''), /Deployed\..*ok refs\/heads\/main/s)
})
