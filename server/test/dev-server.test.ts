/** The promises of `npm run dev` about the server while its sources change. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { runDevServer } from '../../bin/dev-server.ts'
import { until } from './support/until.ts'

/** Says what bin/dev-main.ts says. */
const main = `process.once('message', () => {
  const { run } = require('./program.js')
  process.once('message', run)
  process.send('loaded')
})
`

const sourceOf = (word: string, more = ''): string =>
  `exports.run = () => {
    console.log('${word}')
    process.send('ready')
    process.on('message', () => {})
    ${more}
  }
`

const begin = (t: TestContext, first: string) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-dev-'))
  const file = join(folder, 'program.js')
  writeFileSync(file, first)
  writeFileSync(join(folder, 'main.js'), main)
  const [printed, lines, pids] = [[] as string[], [] as string[], [] as number[]]
  const server = runDevServer({
    start() {
      const child = spawn(process.execPath, [join(folder, 'main.js')], { stdio: ['ignore', 'pipe', 'ignore', 'ipc'] })
      pids.push(child.pid!)
      child.stdout!.setEncoding('utf8').on('data', (text: string) => printed.push(text.trim()))
      return child
    },
    go: { consoleUrl: 'http://localhost:1', inspectPort: null },
    between: async (changed) => void lines.push(`between: ${changed.join()}`),
    say: (line) => lines.push(line.replace(/\d+\.\d s/, 'N s')),
  })
  t.after(async () => {
    await server.stop()
    rmSync(folder, { recursive: true })
    for (const pid of pids) assert.throws(() => process.kill(pid, 0), `process ${pid} is left`)
  })
  const save = (text: string): void => {
    writeFileSync(file, text)
    server.changed('program.js')
  }
  const has = (list: string[], last: string) => until(() => list.at(-1) === last, { what: last, timeoutMs: 20_000 })
  return { server, save, printed, lines, has, pids }
}

test('a change replaces the running program; a mistake replaces nothing, and the next save fixes it', async (t) => {
  const { server, save, printed, lines, has, pids } = begin(t, sourceOf('one'))
  await has(printed, 'one')
  assert.equal(await server.isReady(), true)
  save(sourceOf('two'))
  await has(printed, 'two')
  await has(lines, 'Started again in N s: program.js')
  save('const = 1')
  await has(lines, 'These sources cannot be loaded (code 1): the last ones run on.')
  assert.equal(await server.isReady(), true)
  process.kill(pids[1]!, 0)
  save(sourceOf('three'))
  await has(printed, 'three')
  assert.deepEqual(printed, ['one', 'two', 'three'])
})

test('sources that are wrong at first, and a server that ends, wait for the next save', async (t) => {
  const { server, save, printed, lines, has } = begin(t, 'const = 1')
  assert.equal(await server.isReady(), false)
  assert.deepEqual(lines, ['These sources cannot be loaded (code 1): no server runs.'])
  save(sourceOf('one', 'process.exit(3)'))
  await has(printed, 'one')
  await has(lines, 'The server has ended (code 3): it starts again after the next change.')
  assert.equal(await server.isReady(), false)
  save(sourceOf('two'))
  await has(printed, 'two')
  assert.equal(await server.isReady(), true)
})
