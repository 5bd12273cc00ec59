// Runs alone: it measures, or takes what the machine has.
/** One organization floods the builder with real builds on the engine; another one runs a small build in between. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { newId } from '../src/lib/ids.ts'
import { type BuildScene, openBuildScene } from './support/docker/build-scene.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { until } from './support/until.ts'

const flood = 24
const [theirs, mine] = [newId(), newId()]
let scene: BuildScene

before(async () => {
  scene = await openBuildScene({ concurrency: 2 })
})
after(async () => {
  await scene.close()
  await engine.close()
})

test('beside a flood of builds of another organization, a build waits only for the one that is running', async () => {
  let ended = 0
  const control = new AbortController()
  const builds = Array.from({ length: flood }, async (_, index) => {
    const files = { Dockerfile: `FROM ${busyboxImage}\nRUN echo ${index} && sleep 1\n` }
    await scene.buildFiles(files, { organizationId: theirs, signal: control.signal })
    ended += 1
  })
  const all = Promise.allSettled(builds)
  await until(() => ended > 0, { timeoutMs: 60_000, what: 'the flood to build' })
  for (let round = 0; round < 3; round += 1) {
    const before = ended
    const { log } = await scene.buildFiles(
      { Dockerfile: `FROM ${busyboxImage}\nRUN echo mine ${round}\n` },
      { organizationId: mine },
    )
    assert.match(log, new RegExp(`mine ${round}`))
    // During my build one of theirs may have ended beside it, and the one that had the slot when mine was queued.
    assert.ok(ended - before <= 3, `${ended - before} of theirs ended first`)
  }
  assert.ok(ended < flood, 'the flood is not over')
  control.abort(new Error('enough'))
  await all
})
