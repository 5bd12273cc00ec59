import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { pack } from 'tar-stream'
import { standIn } from '../../../../test/support/stand-in.ts'
import { type Engine, EngineError } from '../../../lib/docker/docker-engine.ts'
import { readableOf } from '../../../lib/tar-streams.ts'
import { collectOutputs } from '../../collect-outputs.ts'
import { openFileOf } from './files.ts'

const signal = new AbortController().signal
const most = 2 ** 20

/** An engine's answer to a request for an archive; `archive` is checked afterwards. */
const read = async (archive: Readable | Error) => {
  const engine = {
    stream: async () => {
      if (archive instanceof Error) throw archive
      return archive
    },
  }
  const open = (path: string) => openFileOf(standIn<Engine>(engine), 'container', path, signal)
  return (await collectOutputs([{ path: '/out', maxBytes: most }], true, open, signal))['/out'] ?? null
}

/** A tar that begins with this entry and never ends. */
const endless = (header: Parameters<ReturnType<typeof pack>['entry']>[0]): Readable =>
  Readable.from(
    (async function* () {
      const head = pack()
      head.entry(header)
      for await (const chunk of readableOf(head)) {
        yield chunk
        break
      }
      for (;;) yield Buffer.alloc(65_536)
    })(),
  )

test('a file is read whole, and only the first of what comes', async () => {
  const archive = pack()
  archive.entry({ name: 'out' }, 'text')
  archive.entry({ name: 'more' }, 'never')
  archive.finalize()
  assert.deepEqual(await read(readableOf(archive)), { text: 'text' })
})

test('a file that claims to be endless is a sentence, and is not read to its end', async () => {
  const archive = endless({ name: 'out', size: 4 * 2 ** 40 })
  const refused = await read(archive)
  assert.ok(refused !== null && 'error' in refused && refused.error.code === 'file_too_large')
  assert.match(refused.error.message, /\/out is larger than 1024 KiB/)
  assert.equal(archive.destroyed, true)
})

test('folders with entries without an end, links, devices and circles of links count as no file', async () => {
  for (const type of ['directory', 'symlink', 'link', 'fifo', 'character-device'] as const) {
    const archive = endless({ name: 'out', type, linkname: '/etc/shadow' })
    assert.equal(await read(archive), null, type)
    assert.equal(archive.destroyed, true)
  }
  assert.equal(await read(new EngineError(500, 'evalSymlinksInScope: too many links in /var/lib/x/out')), null)
  await assert.rejects(read(new EngineError(500, 'something else')), EngineError)
})
