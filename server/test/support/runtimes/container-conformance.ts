/** What every runtime guarantees of the settings of a service's containers: part of the conformance suite. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { newId } from '../../../src/lib/ids.ts'
import type { Exposure } from '../../../src/runtimes/ingress.ts'
import type { Desired, Rollout, Workload } from '../../../src/runtimes/runtime.ts'
import {
  createRollout,
  createWorkload,
  deploymentError,
  nowhere,
  runningAs,
  type Subject,
  type Suite,
  signal,
  until,
} from './conformance.ts'

export type ContainerSubject = Suite & Pick<Subject, 'programs' | 'commands' | 'readiness' | 'say'>

export const conformContainers = ({ runtime, visit, soon, programs, commands, readiness, say }: ContainerSubject) => {
  const exposureOf = ({ serviceId }: Workload): Exposure => {
    const host = `${serviceId}.localhost`
    return { ports: [], hosts: [{ host, internalPort: 8080, protocol: 'HTTP' }] }
  }
  const converge = (workload: Workload, desired: Desired, rollout: Rollout | null = createRollout().rollout) =>
    runtime().converge(workload, desired, rollout, signal())
  const rollOut = (workload: Workload, rollout?: Rollout) =>
    converge(workload, runningAs(workload, exposureOf(workload)), rollout)
  const stopped: Desired = { state: 'stopped', exposure: async () => nowhere, graceMs: 5000 }
  const ask = ({ serviceId }: Workload) => visit(runtime().ingress.url(`${serviceId}.localhost`))

  describe('settings of containers', () => {
    test('the command after the start runs before the version is ready, and the command before the end before it ends', async () => {
      const workload = createWorkload(programs.serve, {
        postStart: commands.tell('hello'),
        preStop: commands.tell('goodbye'),
      })
      await rollOut(workload)
      const told: string[] = []
      const reading = (async () => {
        for await (const { text } of runtime().logs(workload, { follow: true, signal: signal() })) {
          told.push(text)
          if (text === 'goodbye') return
        }
      })()
      await until('hello', () => told.includes('hello') || null)
      await converge(workload, stopped)
      await reading
      assert.deepEqual(
        told.filter((text) => text === 'hello' || text === 'goodbye'),
        ['hello', 'goodbye'],
      )
    })

    test('a failing command after the start fails the rollout, and the previous version keeps serving', async () => {
      const old = createWorkload(programs.serve)
      await rollOut(old)
      const failing = { ...old, revision: newId(), postStart: commands.fail }
      const error = await deploymentError(rollOut(failing))
      assert.equal(error.code, 'post_start_failed')
      // Not every engine reports the code.
      assert.match(error.message, /^The post-start command (exited with code 3: .*|failed.*: check .*)\.$/)
      await converge(old, runningAs(old, exposureOf(old)), null)
      assert.match(await ask(old), /^200/)
      await soon(async () => {
        const revisions = (await runtime().observe([old])).map(({ revision }) => revision)
        assert.deepEqual(revisions, [old.revision])
      })
    })

    test('with Recreate, a version starts after the previous one has ended', async () => {
      const old = createWorkload(programs.serve)
      await rollOut(old)
      const fresh = { ...old, revision: newId(), recreate: true }
      assert.equal(runtime().stopsFirst(old), false)
      const stopsFirst = runtime().stopsFirst(fresh)
      const { rollout } = createRollout(async (step) => {
        if (step === 'start' && stopsFirst) assert.deepEqual(await runtime().observe([old]), [])
      })
      await rollOut(fresh, rollout)
      assert.equal(stopsFirst, true)
      await soon(async () => assert.match(await ask(fresh), /^200/))
    })

    test('an instance that is no longer ready gets no requests until it is again, and with none ready no request is answered', async () => {
      const workload = createWorkload(programs.distinct, { instances: 2, readiness })
      const ends = new AbortController()
      const keeping = runtime().keepAlive(ends.signal)
      const { instances } = await rollOut(workload)
      const answers = async () => new Set(await Promise.all(Array.from({ length: 12 }, () => ask(workload))))
      const untilAnswers = (what: string, is: (of: Set<string>) => boolean) =>
        until(what, async () => (is(await answers()) ? true : null))
      await soon(async () => {
        const all = await answers()
        assert.equal(all.size, 2, [...all].join())
      })
      const [one, two] = instances
      await say(runtime(), one!, false)
      await untilAnswers('one instance', (of) => of.size === 1 && /^200/.test([...of][0]!))
      await say(runtime(), two!, false)
      await untilAnswers('no instance', (of) => [...of].every((answer) => answer.startsWith('503')))
      const seen = await runtime().observe([workload])
      assert.deepEqual(
        seen.map(({ state, unready }) => [state, unready]),
        [
          ['running', true],
          ['running', true],
        ],
      )
      const publication = { service: workload, revision: workload.revision, exposure: exposureOf(workload) }
      assert.equal((await runtime().ingress.look([workload])).isAs(publication), true)
      await say(runtime(), one!, true)
      await say(runtime(), two!, true)
      await untilAnswers('both instances', (of) => of.size === 2 && [...of].every((answer) => answer.startsWith('200')))
      ends.abort()
      await keeping.catch(() => {})
    })
  })
}
