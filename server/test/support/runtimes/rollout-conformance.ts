/** What every runtime guarantees of rollouts, images and what is published: part of the conformance suite. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { describe, test } from 'node:test'
import { newId } from '../../../src/lib/ids.ts'
import { Secret } from '../../../src/lib/secret.ts'
import type { Exposure } from '../../../src/runtimes/ingress.ts'
import type { Desired, Rollout, RolloutStep, Runtime, Workload } from '../../../src/runtimes/runtime.ts'
import { answersDatagrams } from '../peers/datagrams.ts'
import { until } from '../until.ts'
import {
  absent,
  clean,
  createRollout,
  createWorkload,
  deploy,
  deploymentError,
  ignore,
  nowhere,
  rejection,
  runningAs,
  type Subject,
  type Suite,
  signal,
} from './conformance.ts'

const nobody = { organizationId: newId(), origin: null, login: null }

/** Ports that no other test uses. */
let nextPort = 31_000 + Math.floor(Math.random() * 1000)

export interface RolloutSubject extends Suite, Pick<Subject, 'programs' | 'images'> {
  create(ownerId: string): Runtime
}

const patience = { timeoutMs: 60_000 }

export const conformRollouts = (subject: RolloutSubject): void => {
  const { runtime, create, programs, images, declared, visit, startMs, soon } = subject
  const { rollsItself, scalesItself, sharesPorts, abilities } = declared
  /** What never answers shows it within this. */
  const deafMs = 700 + startMs
  /** A version of a service that says which one it is, and the name it is published by. */
  const createVersion = (of: Partial<Workload> = {}) => {
    const revision = newId()
    const workload = createWorkload(programs.serve, { env: new Secret({ PAGE: revision }), ...of, revision })
    const host = `${workload.serviceId}.localhost`
    const exposure: Exposure = { ...nowhere, hosts: [{ host, internalPort: 8080, protocol: 'HTTP' }] }
    return {
      workload,
      exposure,
      desired: runningAs(workload, exposure),
      visit: () => visit(runtime().ingress.url(host)),
    }
  }
  const next = ({ workload }: { workload: Workload }, over: Partial<Workload> = {}) => {
    const { env: _, revision: __, ...same } = workload
    return createVersion({ ...same, ...over })
  }
  const stateOf = async (workload: Workload) =>
    (await runtime().observe([workload])).map(({ revision, state }) => [revision, state])
  const answersAs = (version: ReturnType<typeof createVersion>, by = version) =>
    soon(async () => assert.match(await by.visit(), new RegExp(`^200 .*${version.workload.revision}`)))
  const runsAlone = ({ workload }: ReturnType<typeof createVersion>, what?: string) =>
    soon(async () => assert.deepEqual(await stateOf(workload), [[workload.revision, 'running']], what))
  const converge = (
    workload: Workload,
    desired: Desired,
    rollout: Rollout | null = createRollout().rollout,
    ends = signal(),
  ) => runtime().converge(workload, desired, rollout, ends)

  describe('images', () => {
    test('a held image is available at once, also for repeated calls, by a reference that runs', async () => {
      const image = { ...nobody, reference: images.held, refresh: false }
      const reference = await runtime().images.hold(image, ignore, signal())
      assert.equal(await runtime().images.hold(image, ignore, signal()), reference)
      assert.equal(await runtime().images.hold({ ...image, reference }, ignore, signal()), reference)
      await deploy(runtime(), createWorkload({ ...programs.serve, image: reference }))
    })

    test('a missing image is refused with its name', async () => {
      const image = { ...nobody, reference: images.missing, refresh: true }
      const error = await deploymentError(runtime().images.hold(image, ignore, signal()))
      assert.match(error.code, /^image_/)
      assert.ok(error.message.includes(images.missing), error.message)
      assert.equal(await runtime().images.isHeld(nobody.organizationId, images.missing, signal()), false)
    })

    test('an aborted hold rejects with the reason', async () => {
      const reason = new Error('canceled by the user')
      const image = { ...nobody, reference: images.held, refresh: true }
      assert.equal(await rejection(runtime().images.hold(image, ignore, AbortSignal.abort(reason))), reason)
    })
  })

  describe('a rollout', () => {
    test('starts as many instances as requested, which answer; repeating it changes nothing', async () => {
      const version = createVersion({ instances: 3 })
      const ids = (instances: readonly { id: string }[]) => instances.map(({ id }) => id).sort()
      const first = await converge(version.workload, version.desired)
      assert.equal(first.instances.length, 3)
      await answersAs(version)
      for (const rollout of [createRollout().rollout, null]) {
        const again = await converge(version.workload, version.desired, rollout)
        assert.deepEqual(ids(again.instances), ids(first.instances))
      }
      assert.deepEqual(ids(await runtime().observe([version.workload])), ids(first.instances))
      await converge(version.workload, runningAs({ ...version.workload, instances: 1 }, version.exposure), null)
      await soon(async () => assert.equal((await runtime().observe([version.workload])).length, 1))
      assert.match(await version.visit(), /^200/)
    })

    test('routes requests to the new version before the old one ends, and loses none', async () => {
      const old = createVersion({ instances: 2 })
      await converge(old.workload, old.desired)
      const fresh = next(old, { instances: 1 })
      const { revision } = fresh.workload
      const answers: string[] = []
      let running = true
      const client = async (): Promise<void> => {
        while (running) answers.push(await fresh.visit().catch((error: Error) => error.message))
      }
      const clients = Promise.all([client(), client(), client()])
      const wordsOf: string[][] = []
      const { rollout, steps, told } = createRollout(async (step) => {
        const before = answers.length
        await until(() => answers.length >= before + 6, { ...patience, what: `answers at the step ${step}` })
        if (step === 'switch' && !rollsItself) assert.match(await fresh.visit(), new RegExp(old.workload.revision))
        if (step !== 'serving') return
        await answersAs(fresh)
        wordsOf.push((await stateOf(old.workload)).map(([each]) => each!))
      })
      await converge(fresh.workload, fresh.desired, rollout).finally(() => {
        running = false
      })
      await clients
      assert.deepEqual(steps, ['start', 'ready', 'switch', 'drain', 'retire'])
      const all = [old.workload.revision, old.workload.revision, revision].sort()
      if (!rollsItself) assert.deepEqual(wordsOf[0]!.sort(), all)
      assert.deepEqual(await stateOf(fresh.workload), [[revision, 'running']])
      assert.deepEqual(
        answers.filter((answer) => !answer.startsWith('200 ')),
        [],
      )
      assert.ok(
        told.includes(`Requests to ${runtime().ingress.url(fresh.exposure.hosts[0]!.host)} now go to the new version.`),
      )
    })

    test('publishes the names that exist at the switch, not those of its start', async () => {
      const { workload, exposure } = createVersion()
      const taken = `taken-${workload.serviceId}.localhost`
      let now: Exposure = { ...exposure, hosts: [...exposure.hosts, { ...exposure.hosts[0]!, host: taken }] }
      const { rollout } = createRollout((step) => {
        if (step === 'ready') now = exposure
      })
      await converge(workload, { state: 'running', workload, exposure: async () => now }, rollout)
      await soon(async () => assert.match(await visit(runtime().ingress.url(exposure.hosts[0]!.host)), /^200/))
      assert.match(await visit(runtime().ingress.url(taken)), /^404/)
    })

    test('that fails before the new version serves leaves the old one, and converge to that removes the new one', async () => {
      const old = createVersion()
      await converge(old.workload, old.desired)
      const deaf = next(old, { ...programs.neverReady, readyTimeoutMs: deafMs })
      const error = await deploymentError(converge(deaf.workload, deaf.desired))
      assert.equal(error.code, 'not_ready')
      assert.ok(error.lines.length > 0)
      assert.match(await old.visit(), new RegExp(old.workload.revision))
      await converge(old.workload, old.desired, null)
      assert.match(await old.visit(), new RegExp(old.workload.revision))
      await runsAlone(old)
      const fresh = next(old)
      const reason = new Error('the pointer could not be moved')
      const { rollout } = createRollout((step) => (step === 'serving' ? Promise.reject(reason) : undefined))
      assert.equal(await rejection(converge(fresh.workload, fresh.desired, rollout)), reason)
      await converge(old.workload, old.desired, null)
      await answersAs(old)
      await runsAlone(old)
    })

    test('that was killed at any step resumes when it is requested again', async () => {
      const check = async (killed: RolloutStep | 'serving'): Promise<void> => {
        const old = createVersion()
        await converge(old.workload, old.desired)
        await answersAs(old)
        const fresh = next(old)
        const { rollout } = createRollout((step) => (step === killed ? Promise.reject(new Error('kill')) : undefined))
        await rejection(converge(fresh.workload, fresh.desired, rollout))
        if (['drain', 'retire', 'serving'].includes(killed)) await answersAs(fresh)
        else if (!rollsItself || killed === 'start') await answersAs(old, fresh)
        else assert.match(await fresh.visit(), /^200/, killed)
        await converge(fresh.workload, fresh.desired)
        await answersAs(fresh)
        assert.deepEqual(await stateOf(old.workload), [[fresh.workload.revision, 'running']], killed)
      }
      await Promise.all((['start', 'ready', 'switch', 'serving', 'drain', 'retire'] as const).map(check))
    })

    test('of a service with volumes stops the old version first where the runtime says so, and its volumes are kept', async () => {
      const volume = { id: newId(), mountPath: '/data', sizeGb: 1 }
      const old = createVersion({ volumes: [volume] })
      const stopsFirst = runtime().stopsFirst(old.workload)
      assert.equal(runtime().stopsFirst({ volumes: [] }), false)
      await converge(old.workload, old.desired)
      const fresh = next(old)
      const { rollout, steps } = createRollout(async (step) => {
        if (step === 'start' && stopsFirst) assert.deepEqual(await stateOf(old.workload), [])
      })
      await converge(fresh.workload, fresh.desired, rollout)
      assert.equal(steps.includes('stop-first'), stopsFirst)
      const mine = async () =>
        (await runtime().owned()).volumes
          .filter(({ serviceId }) => serviceId === old.workload.serviceId)
          .map(({ id, environmentId, serviceId }) => ({ id, environmentId, serviceId }))
      const { environmentId, serviceId } = old.workload
      assert.deepEqual(await mine(), [{ id: volume.id, environmentId, serviceId }])
      await converge(fresh.workload, { state: 'stopped', exposure: async () => fresh.exposure, graceMs: 2000 })
      assert.deepEqual(await mine(), [{ id: volume.id, environmentId, serviceId }])
      await soon(async () => assert.match(await fresh.visit(), /^503/))
      await converge(fresh.workload, absent)
      assert.deepEqual(await mine(), [])
      assert.match(await fresh.visit(), /^404/)
      await converge(fresh.workload, absent)
    })

    test('of a service that never answers is refused at its deadline, of one that keeps ending long before', async () => {
      const deaf = createWorkload(programs.neverReady, { readyTimeoutMs: deafMs })
      let begunMs = 0
      const { rollout } = createRollout((step) => {
        if (step === 'ready') begunMs = performance.now()
      })
      const late = await deploymentError(converge(deaf, runningAs(deaf), rollout))
      const tookMs = performance.now() - begunMs
      assert.equal(late.code, 'not_ready')
      assert.ok(tookMs >= deafMs - 50 && tookMs < deafMs + 2300, `took ${tookMs} ms`)
      const ending = createWorkload(programs.crash, { readyTimeoutMs: 20_000 + 4 * startMs })
      begunMs = performance.now()
      const error = await deploymentError(deploy(runtime(), ending))
      assert.ok(performance.now() - begunMs < ending.readyTimeoutMs)
      assert.equal(error.code, 'crash_loop')
      assert.match(error.message, /code 3/)
      assert.ok(error.lines.length > 0)
    })

    test('that is aborted rejects promptly with the reason, and leaves only what converge removes', async () => {
      for (const delayMs of [0, 30, 120, 200]) {
        const workload = createWorkload(programs.neverReady, { instances: 2 })
        const controller = new AbortController()
        const reason = new Error('canceled by the user')
        const work = createRollout().rollout
        const rollout: Rollout = { ...work, step: (_name, _deadlineMs, step) => step(controller.signal) }
        setTimeout(() => controller.abort(reason), delayMs)
        const begun = performance.now()
        assert.equal(await rejection(converge(workload, runningAs(workload), rollout, controller.signal)), reason)
        assert.ok(performance.now() - begun < delayMs + 1000)
        await converge(workload, { state: 'stopped', exposure: async () => nowhere, graceMs: 0 }, null)
        assert.deepEqual(await stateOf(workload), [])
      }
    })

    test('converge of a removed service, and two concurrent ones, succeed', async () => {
      const { workload, desired } = createVersion()
      await converge(workload, absent, null)
      await converge(workload, desired)
      const stop = () => converge(workload, { state: 'stopped', exposure: async () => nowhere, graceMs: 2000 }, null)
      await Promise.all([stop(), stop()])
      await stop()
      assert.deepEqual(await stateOf(workload), [])
    })
  })

  describe('another number of instances', () => {
    const scaling = { min: 0, max: 3, cpuPercent: 60, sleeps: true }
    /** Where the cluster itself follows the use, only a fixed number is ours to change. */
    const ours = scalesItself ? {} : { scaling }
    const resize = (
      { workload, exposure }: ReturnType<typeof createVersion>,
      instances: number,
      more: { serving?: () => Promise<void>; failed?: true } = {},
    ) => {
      const { serving = async () => {}, ...rest } = more
      const desired = { ...runningAs({ ...workload, instances }, exposure), ...rest }
      return runtime().resize(workload, desired, serving, signal())
    }
    const idsOf = async ({ workload }: ReturnType<typeof createVersion>): Promise<string[]> =>
      (await runtime().observe([workload])).sort((a, b) => a.index - b.index).map(({ id }) => id)

    test('adds some beside the running ones and ends the last ones, and restarts none', async () => {
      const version = createVersion({ instances: 1, ...ours })
      await converge(version.workload, version.desired)
      const [first] = await idsOf(version)
      let seen = 0
      await resize(version, 3, {
        async serving() {
          seen = (await idsOf(version)).length
        },
      })
      const three = await idsOf(version)
      assert.deepEqual([three.length, three[0]], [3, first])
      if (!rollsItself) assert.equal(seen, 3)
      assert.match(await version.visit(), /^200/)
      /** The last ones end; or those that the cluster chooses. */
      const areLeft = (count: number) =>
        soon(async () => {
          const ids = await idsOf(version)
          assert.deepEqual(ids, rollsItself ? three.filter((id) => ids.includes(id)) : three.slice(0, count))
          assert.equal(ids.length, count)
        })
      for (const _ of [1, 2]) {
        const { instances } = await resize(version, 2)
        if (!rollsItself) assert.equal(instances.length, 2)
        await areLeft(2)
      }
      const reason = new Error('something else is wanted')
      assert.equal(await rejection(resize(version, 1, { serving: () => Promise.reject(reason) })), reason)
      await areLeft(2)
      await converge(version.workload, runningAs({ ...version.workload, instances: 1 }, version.exposure), null)
      await areLeft(1)
    })

    test('a scaling service has at least the requested number', async () => {
      const version = createVersion({ instances: 2, scaling: { ...scaling, min: 2, sleeps: false } })
      await converge(version.workload, version.desired)
      await soon(async () => assert.equal((await idsOf(version)).length, 2))
      await answersAs(version)
      await converge(version.workload, absent)
    })

    if (!abilities.has('sleep')) return
    test('with none its hosts queue requests, which the first added one answers', async () => {
      const version = createVersion({ instances: 1, scaling })
      await converge(version.workload, version.desired)
      await resize(version, 0)
      assert.deepEqual(await idsOf(version), [])
      const { ingress } = runtime()
      const publication = { service: version.workload, revision: version.workload.revision, exposure: version.exposure }
      assert.equal((await ingress.look([version.workload])).isAs({ ...publication, rest: 'asleep' }), true)
      assert.equal((await ingress.look([version.workload])).isAs(publication), false)
      const waiting = version.visit()
      await resize(version, 1)
      assert.match(await waiting, new RegExp(`^200 .*${version.workload.revision}`))
    })

    test('instances that do not become ready are refused with the reason, and its hosts say so', async () => {
      const deaf = createVersion({ ...programs.neverReady, instances: 0, scaling, readyTimeoutMs: 700 })
      await converge(deaf.workload, deaf.desired, null)
      const waiting = deaf.visit()
      const error = await deploymentError(resize(deaf, 1))
      assert.equal(error.code, 'not_ready')
      await resize(deaf, 0, { failed: true })
      assert.match(await waiting, /^503 .*could not be started/s)
      assert.deepEqual(await idsOf(deaf), [])
    })
  })

  describe('ingress', () => {
    test('an added or removed name is published separately, and reported as different until then', async () => {
      const { workload, exposure, desired } = createVersion()
      await converge(workload, desired)
      const { ingress } = runtime()
      const added = { host: `added-${workload.serviceId}.localhost`, internalPort: 8080, protocol: 'HTTP' as const }
      const more = { ...exposure, hosts: [...exposure.hosts, added] }
      const wanted = { service: workload, revision: workload.revision, exposure: more }
      assert.equal((await ingress.look([workload])).isAs({ ...wanted, exposure }), true)
      assert.equal((await ingress.look()).isAs(wanted), false)
      assert.deepEqual(await ingress.publish(wanted), [])
      assert.equal((await ingress.look([workload])).isAs(wanted), true)
      await soon(async () => assert.match(await visit(ingress.url(added.host)), /^200/))
      assert.equal((await ingress.look([workload])).isAs({ ...wanted, revision: null }), false)
      assert.ok((await ingress.look()).services.includes(workload.serviceId))
      await ingress.unpublish(workload.serviceId)
      assert.match(await visit(ingress.url(added.host)), /^404/)
      assert.ok(!(await ingress.look()).services.includes(workload.serviceId))
    })

    test('a port that is open over both TCP and UDP is reached over both at its published port', async () => {
      nextPort += 1
      const port = nextPort
      const both = (['TCP', 'UDP'] as const).map((protocol) => ({ internalPort: 8080, externalPort: port, protocol }))
      const ports = both.map((each) => ({ ...each, publiclyAccessible: true }))
      const workload = createWorkload(programs.serveBoth, { ports, memoryMb: 128 })
      await deploy(runtime(), workload, { hosts: [], ports: both })
      const addressOf = async (): Promise<string> => {
        await runtime().ingress.look([workload])
        return runtime().ingress.address(port) ?? ''
      }
      await soon(async () => assert.match(await addressOf(), new RegExp(`^[\\d.]+:${port}$`)))
      const address = await addressOf()
      if (sharesPorts) assert.equal(address, `127.0.0.1:${port}`)
      await soon(async () => assert.match(await visit(`http://${address}/`), /^200/))
      assert.ok(await answersDatagrams({ host: address.split(':')[0]!, port }))
      await converge(workload, { state: 'stopped', exposure: async () => ({ hosts: [], ports: both }), graceMs: 0 })
      await soon(() => assert.rejects(visit(`http://${address}/`)))
    })

    if (!sharesPorts) return
    test('a port in use fails a rollout, and does not affect the rest of a version that serves already', async () => {
      nextPort += 1
      const thief = createServer().listen(nextPort, '127.0.0.1')
      await once(thief, 'listening')
      try {
        const old = createVersion()
        await converge(old.workload, old.desired)
        const ports = [{ internalPort: 8080, externalPort: nextPort, protocol: 'TCP' as const }]
        const fresh = next(old)
        const exposure = { ...fresh.exposure, ports }
        const error = await deploymentError(converge(fresh.workload, runningAs(fresh.workload, exposure)))
        assert.equal(error.code, 'port_unavailable')
        assert.match(error.message, new RegExp(`^[A-Z].*${nextPort}.*\\.$`))
        assert.match(await old.visit(), new RegExp(old.workload.revision))
        const { refused } = await converge(fresh.workload, runningAs(fresh.workload, exposure), null)
        assert.equal(refused.length, 1)
        assert.match(await fresh.visit(), new RegExp(fresh.workload.revision))
      } finally {
        thief.close()
      }
    })
  })

  describe('what is owned', () => {
    test('an environment is owned while it has a network, and gone after its removal', async () => {
      const { workload } = createVersion()
      await deploy(runtime(), workload)
      assert.ok((await runtime().owned()).environments.includes(workload.environmentId))
      await converge(workload, { state: 'stopped', exposure: async () => nowhere, graceMs: 2000 })
      await runtime().removeEnvironment(workload.environmentId, signal())
      assert.ok(!(await runtime().owned()).environments.includes(workload.environmentId))
      await runtime().removeEnvironment(workload.environmentId, signal())
      await deploy(runtime(), { ...workload, revision: newId() })
    })

    test('two owners side by side do not see or end each other’s objects', async () => {
      const other = create(`conformance-${newId()}`)
      try {
        const mine = createWorkload(programs.serve)
        const theirs = createWorkload(programs.serve)
        await Promise.all([deploy(runtime(), mine), deploy(other, theirs)])
        const seen = await other.owned()
        assert.deepEqual(
          seen.instances.map(({ serviceId }) => serviceId),
          [theirs.serviceId],
        )
        assert.deepEqual(seen.environments, [theirs.environmentId])
        await other.converge(mine, absent, null, signal())
        assert.equal((await runtime().observe([mine])).length, 1)
        assert.deepEqual(await runtime().observe([theirs]), [])
      } finally {
        await clean(other)
        await other.close()
      }
    })
  })
}
