/** Polls of repositories on several servers and by processes that die, in the engine's test world. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../../../test/support/database.ts'
import {
  addService,
  createTestEngine,
  createWorld,
  type Power,
  partsOf,
  type World,
} from '../../../../test/support/engine.ts'
import { standIn } from '../../../../test/support/stand-in.ts'
import { until } from '../../../../test/support/until.ts'
import { newId } from '../../../lib/ids.ts'
import type { Outbound } from '../../../lib/net/outbound.ts'
import { startStatuses } from '../commit-status/statuses.ts'
import { startPushes } from './pushes.ts'

const following = {
  auto_deploy: true,
  git_repository: { url: 'https://git.example/Team/App.git', branch: 'main', root_path: '/', git_token_id: null },
}

const seenOf = async ({ database }: World, id: string): Promise<string | null> => {
  const [row] = await database.query<{ seen: string | null }>(
    'select seen from followed_branch where service_id = $1',
    [id],
  )
  return row!.seen
}

const newScene = async (services = 1) => {
  const world = await createWorld(await testDatabase())
  const ids: string[] = []
  for (let made = 0; made < services; made += 1) ids.push(await addService(world, following))
  return { world, ids, id: ids[0]! }
}

/** A delivery of a git host: the repository is polled, whichever commit the delivery names. */
const tell = async ({ database }: World, commitId: string | null): Promise<void> => {
  await database.query(
    `insert into push_hint (repository_id, branch, commit_id, pusher) select id, 'main', $1, 'p' from watched_repository`,
    [commitId],
  )
  await database.query(`select pg_notify('slipway_push', '')`)
}

/** How often each commit was requested, by service. */
const requestsFor = async ({ database }: World, commitId: string): Promise<number[]> =>
  (
    await database.query<{ count: number }>(
      `select count(*)::int as count from deployment_service where requested ->> 'commitId' = $1 group by service_id`,
      [commitId],
    )
  ).map(({ count }) => count)

/** Only the polls of one server, with its own power; nothing is deployed. */
const startPolls = async (world: World, power: Partial<Power> = {}) => {
  const { engine, power: its } = createTestEngine(world, power)
  const { engine: calm } = createTestEngine(world)
  its.off = false
  const polls = await startPushes(partsOf(world, its), newId(), { request: calm.request, cancel: calm.cancel })
  assert.ok(engine)
  return { polls, power: its }
}

test('two servers that get the same deliveries deploy each push once', async () => {
  const { world, ids } = await newScene(12)
  const servers = [await startPolls(world), await startPolls(world)]
  await until(async () => (await seenOf(world, ids.at(-1)!)) === 'c1', { what: 'the first look' })
  for (let count = 0; count < 10; count += 1) {
    world.head = `${count}`.padEnd(40, 'a')
    await Promise.all([tell(world, null), tell(world, world.head), tell(world, 'f'.repeat(40))])
    await until(async () => (await seenOf(world, ids.at(-1)!)) === world.head, { what: 'the push' })
    assert.deepEqual(await requestsFor(world, world.head), Array(ids.length).fill(1))
  }
  for (const { polls } of servers) await polls.stop()
  const left = await world.database.query(`select 1 from watched_repository where lease_until > clock_timestamp()`)
  assert.deepEqual(left, [])
})

for (const lateCut of [false, true])
  test(`a push is deployed once though a process dies at any call of a look ${lateCut ? 'after' : 'before'} it happens`, async () => {
    const { world, id } = await newScene()
    const first = await startPolls(world)
    await until(async () => (await seenOf(world, id)) === 'c1', { what: 'the first look' })
    await first.polls.stop()
    let deaths = 0
    for (let calls = 1, survived = false; !survived; calls += 1) {
      world.head = `${calls}`.padEnd(40, 'b')
      const dying = await startPolls(world, { callsLeft: calls, lateCut })
      await tell(world, world.head)
      const hints = async () => (await world.database.query('select 1 from push_hint')).length
      await until(async () => dying.power.off || (await hints()) === 0, { what: `the death at call ${calls}` })
      dying.power.callsLeft = null
      survived = !dying.power.off
      deaths += survived ? 0 : 1
      if (survived) await dying.polls.stop()
      dying.power.off = true
      // As when its lease has run out.
      await world.database.query(`update watched_repository set lease_until = '-infinity'`)
      const next = await startPolls(world)
      // A statement in progress at the death may take the lease once more, which then runs out by itself.
      await until(async () => (await seenOf(world, id)) === world.head && (await hints()) === 0, {
        what: `the push after death at call ${calls}`,
        timeoutMs: 60_000,
      })
      assert.deepEqual(await requestsFor(world, world.head), [1], `call ${calls}`)
      await next.polls.stop()
      assert.ok(calls < 100, 'the look never survived')
    }
    assert.ok(deaths > 8, String(deaths))
  })

test('a host that notifies before a commit is visible is asked again, and one without a new commit is not asked forever', async () => {
  const { world, id } = await newScene()
  const { polls } = await startPolls(world)
  await until(async () => (await seenOf(world, id)) === 'c1', { what: 'the first look' })
  const wanted = 'd'.repeat(40)
  await tell(world, wanted)
  const tries = async () => (await world.database.query<{ tries: number }>('select tries from push_hint'))[0]?.tries
  await until(async () => (await tries()) === 1, { what: 'the first try' })
  world.head = wanted
  const again = async () => {
    await world.database.query('update push_hint set due_at = now()')
    await world.database.query(`select pg_notify('slipway_push', '')`)
  }
  await again()
  await until(async () => (await seenOf(world, id)) === wanted, { what: 'the push' })
  await tell(world, 'e'.repeat(40))
  for (let count = 1; count <= 5; count += 1) {
    await until(async () => (await tries()) === count, { what: `try ${count}`, timeoutMs: 30_000 })
    await again()
  }
  await until(async () => (await tries()) === undefined, { what: 'the end of the tries' })
  await polls.stop()
})

test('one organization has a few looks at once, and is asked less often the more repositories it has', async () => {
  const world = await createWorld(await testDatabase())
  const repository = (count: number) => ({ ...following.git_repository, url: `https://git.example/team/app-${count}` })
  for (let count = 0; count < 90; count += 1)
    await addService(world, { ...following, git_repository: repository(count) })
  let [atOnce, most] = [0, 0]
  const { builder, ...parts } = partsOf(world, { off: false, callsLeft: null, lateCut: false })
  const { engine } = createTestEngine(world)
  const slow: typeof builder.heads = async (...args) => {
    atOnce += 1
    most = Math.max(most, atOnce)
    await world.database.query('select pg_sleep(0.02)')
    atOnce -= 1
    return builder.heads(...args)
  }
  const polls = await startPushes({ ...parts, builder: { ...builder, heads: slow } }, newId(), engine)
  const unseen = async () => (await world.database.query('select 1 from followed_branch where seen is null')).length
  await until(async () => (await unseen()) === 0, { what: 'all first looks', timeoutMs: 20_000 })
  await polls.stop()
  assert.equal(most, 4)
  const [row] = await world.database.query<{ first: number; last: number }>(
    `select extract(epoch from min(next_at) - now())::float8 as first, extract(epoch from max(next_at) - now())::float8 as last
     from watched_repository where next_at < 'infinity'`,
  )
  assert.ok(row!.first > 70 && row!.last < 100, JSON.stringify(row))
})

/** A git host that accepts every report. */
const newHost = () => {
  const told: string[] = []
  const outbound = standIn<Outbound>({
    check: async () => ({ address: '127.0.0.1', family: 4 }),
    async request({ body }: { body: string }) {
      told.push(JSON.parse(body).state)
      return { status: 201, headers: {}, body: '{}', truncated: false }
    },
  })
  return { told, outbound }
}

for (const lateCut of [false, true])
  test(`a git host gets the status of a commit though a process dies at any call ${lateCut ? 'after' : 'before'} it happens`, async () => {
    const { world, id } = await newScene()
    const { database, ids } = world
    const token = newId()
    await database.query(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed)
       values ($1, $2, 'git_token', $2, 'git_token', 'token', $3, $4)`,
      [
        ...[
          token,
          ids.organizationId,
          JSON.stringify({
            ...{ type: 'GITHUB', git_api_url: 'https://git.example/api/v3' },
            repository_origins: ['https://git.example'],
          }),
        ],
        JSON.stringify({ token: Buffer.from('text').toString('base64') }),
      ],
    )
    const { told, outbound } = newHost()
    const rows = () => database.query('select 1 from commit_status')
    let deaths = 0
    for (let calls = 1, survived = false; !survived; calls += 1) {
      told.length = 0
      await database.query(
        `insert into commit_status (organization_id, service_id, name, url, git_token_id, commit_id, reason)
         values ($1, $2, 'a/b/c', 'https://git.example/Team/App.git', $3, $4, 'No.')`,
        [ids.organizationId, id, token, `${calls}`.padEnd(40, 'c')],
      )
      const power: Power = { off: false, callsLeft: calls, lateCut }
      const dead = newId()
      const dying = await startStatuses(partsOf(world, power, { outbound }), dead)
      await until(async () => power.off || (await rows()).length === 0, { what: `the death at call ${calls}` })
      survived = !power.off
      deaths += survived ? 0 : 1
      power.callsLeft = null
      if (survived) await dying.stop()
      power.off = true
      const next = await startStatuses(partsOf(world, { off: false, callsLeft: null, lateCut }, { outbound }), newId())
      await until(
        async () => {
          await database.query(`update commit_status set lease_until = '-infinity' where worker = $1`, [dead])
          await database.query(`select pg_notify('slipway_commit_status', '')`)
          return (await rows()).length === 0
        },
        { what: `the status after death at call ${calls}`, timeoutMs: 60_000 },
      )
      await next.stop()
      assert.ok(told.length > 0 && told.every((state) => state === 'failure'), `call ${calls}: ${told}`)
      assert.ok(calls < 50, 'telling never survived')
    }
    assert.ok(deaths > 3, String(deaths))
  })
