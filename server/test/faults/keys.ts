/** F25: a master key that is missing, or is another: nothing starts, and nothing is made anew over what is sealed. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { withDatabase } from '../support/docker/leftovers.ts'
import type { Slipway } from '../support/slipway/slipway.ts'
import type { Fault } from './fault.ts'
import { timed, whole } from './figures.ts'
import { withScene } from './scene.ts'

/** The data keys as they lie in the database. */
const dataKeys = ({ dataDir }: Slipway): Promise<unknown[]> =>
  withDatabase(dataDir, (database) => database.query('select id, master_key_id, wrapped from data_key order by id'))

/** Starts it in vain; answers how long that took. */
const refuse = async (slipway: Slipway, expected: RegExp): Promise<number> => {
  let said = ''
  const stop = slipway.onOutput((text) => {
    said += text
  })
  const endedMs = await timed(() => assert.rejects(slipway.start(), /slipway ended with 1:/))
  stop()
  const lines = said.split('\n').filter((line) => line.trim() !== '')
  assert.equal(lines.length, 1, `said: ${said}`)
  assert.match(lines[0]!, expected)
  return endedMs
}

interface Key {
  what: string
  /** Null: the file does not exist. */
  text: string | null
  says: RegExp
}

const wrongKeys = (right: string): Key[] => [
  {
    what: 'missing',
    text: null,
    says: /^Slipway cannot start: the master key file .*master is missing, .*restore the file$/,
  },
  {
    what: 'another',
    text: `${randomBytes(32).toString('base64')}\n`,
    says: /^Slipway cannot start: the master key file .*master does not have the key .*restore it$/,
  },
  { what: 'empty', text: '', says: /^Slipway cannot start: the master key file .*master has no key$/ },
  { what: 'cut', text: right.slice(0, 20), says: /^Slipway cannot start: the master key file .*not a base64 key/ },
]

const masterKey: Fault = {
  id: 'F25',
  title: 'without the master key, or with another, it refuses to start and makes no new one',
  run: () =>
    withScene({ fake: true }, async ({ slipway, send }) => {
      const file = join(slipway.dataDir, 'keys', 'master')
      const { id } = await send('GET', '/organization')
      const create = () =>
        slipway.api('POST', `/organization/${id}/project`, { name: 'sealed' }, { 'idempotency-key': 'sealed-answer' })
      const first = await create()
      await slipway.kill('SIGTERM')
      const [right, kept] = [readFileSync(file, 'utf8'), await dataKeys(slipway)]
      assert.ok(kept.length > 0)
      renameSync(file, `${file}.kept`)
      const times: string[] = []
      for (const { what, text, says } of wrongKeys(right)) {
        if (text === null) rmSync(file, { force: true })
        else writeFileSync(file, text, { mode: 0o600 })
        times.push(`${what} ${whole(await refuse(slipway, says))} ms`)
        assert.equal(existsSync(file) ? readFileSync(file, 'utf8') : null, text, `the key file changed: ${what}`)
        assert.deepEqual(await dataKeys(slipway), kept)
      }
      renameSync(`${file}.kept`, file)
      await slipway.start()
      const again = await create()
      assert.equal(again.headers.get('idempotent-replayed'), 'true')
      assert.deepEqual(again.body, first.body)
      return `refused in one line (${times.join(', ')}); with its own key what was sealed opens`
    }),
}

export const keyFaults: readonly Fault[] = [masterKey]
