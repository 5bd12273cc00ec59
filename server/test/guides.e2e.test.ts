// Runs each night: docs/guides/develop.md says what every run has instead.
/** The guides on a real engine: their promises about running services are checked. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { guidesToPaste, pasteGuides } from './support/guides.ts'
import { prepareSlipway } from './support/slipway/slipway.ts'

const usual = { SLIPWAY_ADMIN_TOKEN: '', SLIPWAY_OUTBOUND_ALLOW: '', SLIPWAY_RATE_LIMIT: '', SLIPWAY_SAMPLE: 'on' }

const hasImage = (name: string): Promise<boolean> =>
  engine.call('GET', `/images/${name}/json`).then(
    () => true,
    () => false,
  )

test('all guides can be pasted on a real engine, except the one to databases if their image is not available', async (t) => {
  // The base of our examples, for which any will do.
  await ensureBusybox('busybox:1')
  const slipway = await prepareSlipway({ env: usual })
  t.after(() => slipway.remove())
  await slipway.start()
  // It destroys the data directory: guides.test.ts and restore.e2e.test.ts.
  const skipped = ['backup.md', ...((await hasImage('postgres:16')) ? [] : ['databases.md'])]
  const names = guidesToPaste.filter((name) => !skipped.includes(name))
  const text = await pasteGuides(names, { SLIPWAY_DATA_DIR: slipway.dataDir, HOME: '/nonexistent' })
  assert.match(text, /guide first-deploy\.md\n[\s\S]*?\nRUNNING\nhttp:\/\/web-test/)
  assert.match(text, /guide cron-jobs\.md\n[\s\S]*?\nSUCCEEDED\n[\s\S]*?\ngood night\n/)
  assert.match(text, /guide router\.md\n[\s\S]*?\n401\n200\n/)
  assert.match(text, /guide domains\.md\n[\s\S]*?\n200\n/)
})
