import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { deathOf } from './thread-death.ts'

const cases: [program: string, death: unknown][] = [
  ['const all = []; for (;;) all.push({ all: [...all] })', { kind: 'died', of: 'memory' }],
  ['throw new RangeError("too deep")', { kind: 'died', of: 'crash', message: 'RangeError: too deep' }],
  ['process.exit(3)', { kind: 'died', of: 'crash', message: 'it exited with code 3' }],
]

for (const [program, expected] of cases)
  test(`the cause of a thread's death is known: ${program}`, async () => {
    const worker = new Worker(program, { eval: true, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: 16 } })
    const { promise, resolve } = Promise.withResolvers<unknown>()
    let thrown: unknown
    worker.on('error', (error) => {
      thrown = error
    })
    worker.on('exit', (code) => resolve(deathOf(thrown, code)))
    assert.deepEqual(await promise, expected)
  })
