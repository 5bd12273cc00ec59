/**
 * The example of examples/shop on a real engine: a database, its migration, a container from a registry with a login,
 * two applications of which one calls the other, and a cron job.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { containersOf, engine, networksOf, volumesOf } from './support/docker/docker.ts'
import { logins, type Registry, registryIsMissing, startRegistry } from './support/docker/registry.ts'
import { isNight } from './support/nightly.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { createShop, deployShop, publishPrices, publishShop, type ShopArguments } from './support/slipway/shop.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { deploymentLog, isSettled, visit } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let slipway: Slipway
let git: GitServer
let registry: Registry
let published: Omit<ShopArguments, 'environment'>

before(async () => {
  if (registryIsMissing !== false) return
  // The base of our examples, for which any will do.
  await ensureBusybox('busybox:1')
  await ensureDatabaseImage('postgres:16')
  git = await startGitServer()
  registry = await startRegistry()
  slipway = await prepareSlipway()
  await slipway.start()
  published = await publishShop(slipway, git, registry)
})

after(async () => {
  await slipway?.remove()
  await registry?.close()
  await git?.close()
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** Requests an action on a whole environment and waits for its end. */
const act = async (environmentId: string, verb: string, body?: unknown): Promise<string> => {
  const { deployment_request_id: id } = await send('POST', `/environment/${environmentId}/${verb}`, body)
  return until(
    async () => {
      const { environment } = (await slipway.api('GET', `/environment/${environmentId}/statuses`)).body
      const isOver = environment.deployment_request_id !== id && isSettled(environment.state)
      return isOver ? environment.state : null
    },
    { timeoutMs: 120_000, what: `${verb} of the environment` },
  )
}

const page = async (environmentName: string): Promise<string> =>
  (await visit(slipway, `front-${environmentName}.localhost`)).text

const shows = (orders: number, coffee = 4): string => `orders: ${orders}\ntea: 3, coffee: ${coffee}`

const stages = async (environmentId: string): Promise<string[]> => {
  const { results } = await send('GET', `/environment/${environmentId}/deploymentHistoryV2`)
  return results[0].stages.flatMap(({ name, services }: Json) => (services.length > 0 ? [name] : []))
}

/** The objects of an environment on the engine. */
const leftovers = async (environmentId: string): Promise<number> => {
  const containers = await engine.call<unknown[]>('GET', '/containers/json', {
    query: { all: true, filters: JSON.stringify({ label: [`slipway.environment=${environmentId}`] }) },
  })
  return containers.length + (await volumesOf(environmentId)).length + (await networksOf(environmentId)).length
}

const isGone = async (environmentId: string): Promise<boolean> =>
  (await slipway.api('GET', `/environment/${environmentId}`)).status === 404

const containerIds = async (ids: readonly string[]): Promise<string[]> =>
  (await Promise.all(ids.map(containersOf))).flat().map(({ Id }) => Id)

test('one deploy brings up the whole shop; it can be stopped, restarted, cloned and deleted, and keeps its data', {
  skip: registryIsMissing,
}, async () => {
  const args = { ...published, environment: 'shop' }
  const shop = await createShop(args)
  const { environmentId, services } = shop
  const { database, prices, orders, front, nightly } = services

  assert.equal(await deployShop(args, shop), `http://front-shop.localhost:${slipway.routerPort}`)
  assert.deepEqual(await stages(environmentId), [
    'DATABASE DEFAULT',
    'JOB DEFAULT',
    'CONTAINER DEFAULT',
    'APPLICATION DEFAULT',
  ])
  assert.match(await deploymentLog(slipway, environmentId), /migrated/)
  assert.equal((await containersOf(prices.id)).length, 1)
  assert.deepEqual([await page('shop'), await page('shop')], [shows(1), shows(2)])

  await send('POST', `/job/${nightly.id}/redeploy?forceEvent=CRON`)
  await until(async () => (await deploymentLog(slipway, environmentId)).includes('the night is quiet'), {
    timeoutMs: 30_000,
    what: 'the run of the cron job',
  })

  await slipway.kill('SIGKILL')
  assert.equal(await page('shop'), shows(3))
  await slipway.start()
  assert.equal(await act(environmentId, 'redeploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  assert.equal(await page('shop'), shows(4))

  const running = [database.id, prices.id, orders.id, front.id]
  const before = await containerIds(running)
  const some = { database_ids: [database.id], container_ids: [prices.id], application_ids: [orders.id, front.id] }
  await act(environmentId, 'service/restart-service', some)
  const { environment, ...kinds } = await send('GET', `/environment/${environmentId}/statuses`)
  const states = [...kinds.databases, ...kinds.containers, ...kinds.applications].map((one: Json) => one.state)
  assert.deepEqual(states, ['RESTARTED', 'RESTARTED', 'RESTARTED', 'RESTARTED'], environment.state)
  const restarted = await containerIds(running)
  assert.deepEqual([restarted.length, restarted.filter((id) => before.includes(id))], [4, []])
  assert.equal(await page('shop'), shows(5))

  assert.equal(await act(environmentId, 'stop'), 'STOPPED')
  assert.deepEqual(await containerIds(running), [])
  assert.equal(await act(environmentId, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, environmentId))
  assert.equal(await page('shop'), shows(6))

  const clone = await send('POST', `/environment/${environmentId}/clone`, { name: 'beside' })
  assert.equal(await act(clone.id, 'deploy'), 'DEPLOYED', await deploymentLog(slipway, clone.id))
  assert.equal(await page('beside'), shows(1))
  assert.equal(await page('shop'), shows(7))

  for (const id of [environmentId, clone.id]) {
    await send('DELETE', `/environment/${id}`)
    await until(() => isGone(id), { timeoutMs: 60_000, what: 'the end of the environment' })
    assert.equal(await leftovers(id), 0)
  }
})

test('a shop keeps working over every change of its registry’s password, whatever its length', {
  skip: registryIsMissing,
}, async () => {
  // Each length from 8 to 20 at night; every one of them deploys in images-apart.e2e.test.ts.
  const tried = logins.filter((_, at) => isNight || at % 6 === 0)
  const [first, ...others] = tried.map(({ password }) => ({
    ...published,
    environment: 'keys',
    username: 'shop',
    password,
  }))
  registry.setPassword(first!)
  await publishPrices(registry, { 'index.html': 'tea: 3, coffee: 8' })
  const shop = await createShop(first!)
  await deployShop(first!, shop)
  assert.equal(await page('keys'), shows(1, 8))
  const path = `/organization/${shop.organizationId}/containerRegistry`
  const { id, name, kind, url } = (await send('GET', path)).results.find((one: Json) => one.name === 'shop')

  for (const [at, args] of others.entries()) {
    const { username, password } = args
    registry.setPassword(args)
    // Only the registry has this image, and it accepts one password: the page shows that it was pulled.
    await publishPrices(registry, { 'index.html': `tea: 3, coffee: ${password.length}` })
    if (at === 0) {
      assert.equal(await act(shop.environmentId, 'deploy'), 'DEPLOYMENT_ERROR')
      assert.match(await deploymentLog(slipway, shop.environmentId), /shop\/prices:1 .*rejected this login/)
      assert.equal(await page('keys'), shows(2, 8), 'what was there serves')
    }
    await send('PUT', `${path}/${id}`, { name, kind, url, config: { username, password } })
    await deployShop(args, shop)
    assert.equal(await page('keys'), shows(at + 3, password.length))
  }
})
