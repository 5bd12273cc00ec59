import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { type TestContext, test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Database } from '../../store/database.ts'
import { type Git, GitFailed } from '../git/process.ts'
import { createStored } from './stored.ts'

/** `lists`: the packs of the repository at each read. Those in `whole` can be read to their end. */
const restore = (t: TestContext, lists: string[][], whole: string[]) => {
  const mirror = mkdtempSync(join(tmpdir(), 'slipway-mirror-'))
  t.after(() => rmSync(mirror, { recursive: true }))
  const read: string[] = []
  const database = standIn<Database>({
    async query(sql: string, [id]: string[]) {
      if (sql.includes('git_pack_part')) {
        read.push(id!)
        return []
      }
      return (lists.length > 1 ? lists.shift()! : lists[0]!).map((each) => ({ id: each, name: each }))
    },
  })
  const git = standIn<Git>({
    talk() {
      const output = new Readable({ read() {} })
      const input = new Writable({
        final(done) {
          if (whole.includes(read.at(-1)!)) output.push(null)
          else output.destroy(new GitFailed('fatal: early EOF', 'code 128'))
          done()
        },
      })
      return { input, output }
    },
    remove: async () => {},
  })
  return createStored(database)
    .restore(git, mirror, 'id', (work) => work())
    .then(() => read)
}

test('packs that are merged while a mirror is made of them are read again as what they are then', async (t) => {
  assert.deepEqual(await restore(t, [['one', 'two'], ['merged'], ['merged']], ['one', 'merged']), [
    'one',
    'two',
    'merged',
  ])
  await assert.rejects(restore(t, [['one']], []), { code: 'git_refused' })
})
