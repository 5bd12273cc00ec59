/** Steps that tests of the engine share: worlds and engines that end with the test file, and waiting for services. */
import { after } from 'node:test'
import { isFinal } from '../../src/deployments/status/states.ts'
import { testDatabase } from './database.ts'
import { createTestEngine, createWorld, type TestEngine, type World } from './engine.ts'
import { until } from './until.ts'

const engines: TestEngine[] = []
const worlds: World[] = []

after(async () => {
  for (const { power, engine } of engines) {
    const stopped = engine.stop()
    if (!power.off) await stopped
  }
  for (const world of worlds) await world.runtime.close()
})

export const newWorld = async (): Promise<World> => {
  const world = await createWorld(await testDatabase())
  worlds.push(world)
  return world
}

export const start = async (
  world: World,
  power = {},
  more: Parameters<typeof createTestEngine>[2] = {},
): Promise<TestEngine> => {
  const test = createTestEngine(world, power, more)
  engines.push(test)
  // With the power off a start never comes back.
  await Promise.race([test.engine.start(), until(() => test.power.off, { timeoutMs: 10_000, what: 'the start' })])
  return test
}

export const statusOf = async ({ engine }: TestEngine, world: World, id: string) =>
  (await engine.statuses(world.database, [id]))[0]

export const settled = (engine: TestEngine, world: World, id: string, timeoutMs = 10_000): Promise<string> =>
  until(
    async () => {
      const status = await statusOf(engine, world, id)
      if (status === undefined) return 'DELETED'
      return isFinal(status.state) ? status.state : null
    },
    { timeoutMs, what: `service ${id} to settle` },
  )

export const revisions = async (world: World, id: string): Promise<string[]> =>
  (await world.runtime.instancesOf(id)).map((instance) => instance.revision)

export const openDeployments = (world: World) =>
  world.database.query(`select id, state from deployment where state in ('QUEUED', 'RUNNING')`)

export const targets = (world: World, id: string) => world.routes.get(id)?.flatMap((route) => route.targets) ?? []
