/** What tests of orders share: a world with one service, a certificate authority of their own, and a clock that they move. */
import { createAccountKey } from '../../../src/certificates/acme.ts'
import { AuthorityProblem, type CertificateAuthority, type OrderView } from '../../../src/certificates/authority.ts'
import { attempt, type OrderParts } from '../../../src/certificates/order.ts'
import { claimDue, followHosts, type Wanted } from '../../../src/certificates/rows.ts'
import { newId } from '../../../src/lib/ids.ts'
import { createLog } from '../../../src/lib/log.ts'
import { testDatabase } from '../database.ts'
import { addService, createWorld, partsOf, type World } from '../engine.ts'
import { createFakeClock, type FakeClock } from '../fake-clock.ts'
import { until } from '../until.ts'
import { createTestCa } from './test-ca.ts'

const ca = await createTestCa()
export const day = 86_400_000
export const domain = 'apps.example.test'
export const log = createLog('silent')

interface Order {
  host: string
  status: OrderView['status']
  problem: string | null
  chain: string
}

/** What it does is said before each of its calls. */
const createFakeCa = (clock: FakeClock) => {
  const orders = new Map<string, Order>()
  const told: string[] = []
  const state = { refusal: null as Error | null, verdict: 'valid' as 'valid' | 'invalid' | 'never', calls: 0 }
  const orderOf = (url: string): Order => {
    const found = orders.get(url)
    if (found === undefined) throw new AuthorityProblem('gone', 'The certificate authority refused: no such order')
    return found
  }
  const step = async (): Promise<void> => {
    state.calls += 1
    if (state.refusal !== null) throw state.refusal
  }
  const authority: CertificateAuthority = {
    async order(host) {
      await step()
      const url = `order-${orders.size + 1}`
      orders.set(url, { host, status: 'pending', problem: null, chain: '' })
      return url
    },
    async look(url, kind) {
      await step()
      const { host, status, problem } = orderOf(url)
      const challenge = {
        kind,
        token: `t-${host}`,
        answer: `t-${host}.print`,
        url,
        isAnswered: false,
      }
      return { status, challenge: status === 'pending' ? challenge : null, problem }
    },
    async answer(url) {
      await step()
      const order = orderOf(url)
      if (state.verdict === 'never') return
      order.status = state.verdict === 'valid' ? 'ready' : 'invalid'
      order.problem = state.verdict === 'valid' ? null : 'Connection refused'
    },
    createKey: createAccountKey,
    async finalize(url, host, key) {
      await step()
      const life = { notBefore: clock.now(), notAfter: new Date(clock.now().getTime() + 90 * day) }
      Object.assign(orderOf(url), { status: 'valid', chain: await ca.certify(host, key, life) })
    },
    async certificate(url) {
      await step()
      return orderOf(url).chain
    },
    alpnPair: (host) => ca.issue(host),
  }
  return { authority, orders, told, state }
}

export interface Row {
  host: string
  problem: { code: string; message: string } | null
  failures: number
  next_at: Date
  chain: string | null
  chain_key: string | null
  order_url: string | null
  challenge: unknown
}

export interface Scene {
  world: World
  clock: FakeClock
  ca: ReturnType<typeof createFakeCa>
  parts: OrderParts
  row(host?: string): Promise<Row>
  /** Does what is due; how many there were. */
  work(): Promise<number>
}

export const hostOf = (id: string): string => `${id}.${domain}`

type More = Partial<OrderParts>

export const newScene = async (
  more: More | ((base: OrderParts) => More) = {},
): Promise<Scene & { id: string; host: string }> => {
  const world = await createWorld(await testDatabase())
  const { database } = world
  const clock = createFakeClock(new Date())
  const fake = createFakeCa(clock)
  const engineParts = partsOf(world, { off: false } as never)
  const base: OrderParts = {
    ...{ database, sealer: engineParts.sealer, authority: fake.authority, clock, log },
    outbound: { addressesOf: async () => ['192.0.2.1'] },
    notifyRouters: async (host) => void fake.told.push(host),
    ...{ challenge: 'http-01', dns: null, mostCertificates: 10, random: () => 0 },
  }
  const parts = { ...base, ...(typeof more === 'function' ? more(base) : more) }
  const id = await addService(world)
  await database.query('update route set host = $2 where service_id = $1', [id, hostOf(id)])
  await followHosts(database, { domain, apiHost: undefined, hasDns: parts.dns !== null })
  const run = async (wanted: Wanted): Promise<void> => {
    let isDone = false
    const done = attempt(parts, wanted, new AbortController().signal).finally(() => {
      isDone = true
    })
    // The order polls with pauses of its own.
    while (!isDone) {
      await until(() => isDone || clock.sleeping() > 0, { what: 'the next pause of the order' })
      await clock.advance(1000)
    }
    await done
  }
  return {
    ...{ world, clock, ca: fake, parts, id, host: hostOf(id) },
    async row(host = hostOf(id)) {
      const [row] = await database.query<Row>('select * from certificate where host = $1', [host])
      return row!
    },
    async work() {
      const { claimed } = await claimDue(database, newId(), 10, clock.now())
      for (const wanted of claimed) await run(wanted)
      return claimed.length
    },
  }
}
