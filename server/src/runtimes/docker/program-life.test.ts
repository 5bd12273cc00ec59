/**
 * When the programs of containers are checked for readiness, when their start command runs, and when they are asked to
 * end.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import {
  clean,
  createTask,
  createWorkload,
  ignore,
  type Program,
  signal,
  start,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { stateOutputs } from '../../deployments/tasks/files.ts'
import { createEngine, type Engine } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import type { Probe, Workload } from '../runtime.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'
import { execIn } from './exec.ts'

const shell = (script: string): Program => ({ image: busyboxImage, entrypoint: ['sh', '-c'], arguments: [script] })
const tell = (line: string): string[] => ['sh', '-c', `echo ${line} > /proc/1/fd/1`]
const rest = 'while :; do sleep 0.1; done'
const left = { path: '/out/left.txt', maxBytes: 100 }

describe('the life of programs', () => {
  let runtime: DockerRuntime
  let engine: Engine
  before(async () => {
    await ensureBusybox()
    engine = createEngine()
    runtime = createDockerRuntime({ ownerId: `program-life-test-${newId()}`, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await engine.close()
  })

  /** The times at which the program printed the line, in milliseconds. */
  const timesOf = async (workload: Workload, line: string): Promise<number[]> => {
    const times: number[] = []
    for await (const { text, at } of runtime.logs(workload, { tail: 100 }))
      if (text === line) times.push(Date.parse(at))
    return times
  }

  test('a task is asked to end and has its grace, also when it took too long; without a grace it is killed at once', async () => {
    const polite = shell(`trap 'sleep 1; printf saved > /out/left.txt; exit 0' TERM; echo begun; ${rest}`)
    const begin = async (program: Program, more: object = {}) => {
      const task = createTask(program, { outputs: [left], ...more })
      const lines: string[] = []
      const run = runtime.run(task, (line) => lines.push(line), signal())
      await until('the program', () => lines.length > 0 || null)
      return { task, run }
    }
    const asked = await begin(polite)
    assert.deepEqual(await runtime.stopTask(asked.task, 20_000, signal()), { [left.path]: { text: 'saved' } })
    assert.equal((await asked.run).exitCode, 0)

    const late = await begin(polite, { timeoutMs: 1000, stopGraceMs: 20_000 })
    const { timedOut, outputs } = await late.run
    assert.deepEqual([timedOut, outputs], [true, { [left.path]: { text: 'saved' } }])

    const stubborn = await begin(shell(`trap '' TERM; echo begun; ${rest}`))
    const beganMs = performance.now()
    const plain = runtime.stopTask(stubborn.task, 30_000, signal())
    await runtime.stopTask(stubborn.task, 0, signal())
    await plain
    assert.equal((await stubborn.run).exitCode, 137)
    assert.ok(performance.now() - beganMs < 10_000)
  })

  test('the tool of a terraform service is asked too, and what it saves before its end is waited for', async () => {
    const tool = `#!/bin/sh
[ "$1" = apply ] || exit 0
trap 'sleep 2; echo saved > /slipway-output/state.json; exit 1' TERM
echo applying
${rest}
`
    const files = new Secret([
      { path: '/in/run', content: readFileSync(new URL('../../builds/tool-script.sh', import.meta.url), 'utf8') },
      { path: '/in/tool', content: tool },
    ])
    const prepare = 'mkdir -p /module/infra; touch /module/infra/main.tf; cp /in/tool /tmp/tool; chmod +x /tmp/tool'
    const program = shell(`${prepare}; exec sh /in/run apply /tmp/tool infra here`)
    const task = createTask(program, { files, outputs: stateOutputs })
    const lines: string[] = []
    const run = runtime.run(task, (line) => lines.push(line), signal())
    await until('the apply', () => lines.includes('applying') || null)
    const saved = { [stateOutputs[0]!.path]: { text: 'saved\n' } }
    assert.deepEqual(await runtime.stopTask(task, 20_000, signal()), saved)
    assert.notEqual((await run).exitCode, 0)
  })

  test('the command after the start is run again after each start by the engine', async () => {
    const crashing = shell(`until [ -e /tmp/end ]; do sleep 0.1; done; rm /tmp/end; exit 1`)
    const workload = createWorkload(crashing, { ports: [], postStart: tell('hello') })
    const ends = new AbortController()
    const watching = runtime.keepAlive(ends.signal)
    const [instance] = await start(runtime, workload)
    const untilTold = (count: number) =>
      until(`hello ${count}`, async () => (await timesOf(workload, 'hello')).length === count || null)
    await untilTold(1)
    await execIn(engine, instance!.id, ['touch', '/tmp/end'], signal())
    await untilTold(2)
    await engine.call('POST', `/containers/${instance!.id}/restart`, { query: { t: 0 } })
    await untilTold(3)
    ends.abort()
    await watching.catch(ignore)
  })

  const probe = (more: Partial<Probe>): Probe => ({
    check: { kind: 'exec', command: tell('look') },
    initialDelaySeconds: 30,
    periodSeconds: 10,
    timeoutSeconds: 5,
    successThreshold: 2,
    failureThreshold: 3,
    ...more,
  })
  const rollOut = async (readiness: Probe) => {
    const workload = createWorkload(shell(`echo begun; exec sleep 1000`), { ports: [], readiness })
    await start(runtime, workload)
    const [[begun], looks] = [await timesOf(workload, 'begun'), await timesOf(workload, 'look')]
    return [looks[0]! - begun!, looks[1]! - looks[0]!] as const
  }

  test('a chosen delay and period are kept while a version starts; with the usual ones it is asked at once', async () => {
    const [[chosenDelay, chosenPeriod], [usualDelay, usualPeriod]] = await Promise.all([
      rollOut(probe({ initialDelaySeconds: 3, periodSeconds: 2 })),
      rollOut(probe({})),
    ])
    assert.ok(chosenDelay > 2500 && chosenDelay < 8000, `${chosenDelay} ms`)
    assert.ok(chosenPeriod > 1900 && chosenPeriod < 6000, `${chosenPeriod} ms`)
    assert.ok(usualDelay < 2500, `${usualDelay} ms`)
    assert.ok(usualPeriod < 1500, `${usualPeriod} ms`)
  })
})
