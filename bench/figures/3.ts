import { setTimeout as sleep } from 'node:timers/promises'
import { request } from 'undici'
import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { rawDeploy } from '../floors/raw.ts'
import { engineLine, eventLine, type Reading, readNumbers } from '../log-lines.ts'
import { median, residentMb, timed } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { deploy, hostOf, makeApplication, untilRouted } from '../ours-deploy.ts'

/** Followed each round: five rounds are a million. */
const followed = 200_000
/** Faster than it can be followed, the engine itself loses and repeats lines where it rotates its file. */
const perTenth = 4000
/** Kept by the engine under the product's caps, and read as often as a round needs for a good half a million. */
const kept = 280_000
const liveLines = 30

interface Log {
  /** Prints the numbers from `first` to `last`. */
  print(first: number, last: number, atOnce: number): Promise<void>
  /** The lines from the last `tail` on. */
  read(tail: number, until: number, onLine?: (number: number) => void): Promise<Reading>
}

const printer =
  (origin: string, headers: Record<string, string>): Log['print'] =>
  async (first, last, atOnce) => {
    const path = `/cgi-bin/print?${first},${last},${atOnce}`
    const answer = await request(origin + path, { headers, headersTimeout: 120_000 })
    const text = await answer.body.text()
    if (text !== 'printed\n') throw new Error(`the program could not print: ${answer.statusCode} ${text.slice(0, 80)}`)
  }

/** Follows while numbers are printed, then reads what is kept. */
const throughput = async (log: Log, from: number) => {
  const last = from + followed - 1
  const reading = log.read(0, last)
  // A follower that has joined before the first line is what is measured.
  await sleep(500)
  await log.print(from, last, perTenth)
  const live = await Promise.race([reading, sleep(20_000, null)])
  if (live === null) throw new Error(`line ${last} was never read`)
  return live
}

const history = async (log: Log, last: number): Promise<{ rate: number; breaks: number }> => {
  const first = await log.read(kept, last)
  const second = await log.read(kept, last)
  return {
    rate: ((first.lines + second.lines) / (first.ms + second.ms)) * 1000,
    breaks: first.breaks + second.breaks,
  }
}

/** Milliseconds from the engine's stamp on a line until the reader has it, the median of lines printed one by one. */
const lateness = async (log: Log, stamps: (signal: AbortSignal) => Promise<AsyncIterable<Buffer>>, from: number) => {
  const ending = new AbortController()
  const waited: number[] = []
  const reading = (async () => {
    for await (const chunk of await stamps(ending.signal)) {
      const now = performance.timeOrigin + performance.now()
      for (const [stamp] of chunk.toString('latin1').matchAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g))
        waited.push(now - Date.parse(stamp))
    }
  })().catch(() => {})
  await sleep(300)
  await log.print(from, from + liveLines - 1, 1)
  await sleep(200)
  ending.abort()
  await reading
  if (waited.length < liveLines) throw new Error(`only ${waited.length} of ${liveLines} lines came`)
  return median(waited)
}

const openStream = async (url: string, headers: Record<string, string>, signal: AbortSignal) => {
  const answer = await request(url, { headers, signal, bodyTimeout: 0 })
  if (answer.statusCode !== 200) throw new Error(`${url}: ${answer.statusCode} ${await answer.body.text()}`)
  return answer.body as AsyncIterable<Buffer>
}

const floorSide = async (bench: Bench): Promise<Side> => {
  const { engine } = bench
  const { image } = await bench.sources()
  const id = await rawDeploy(engine, image, { cappedLog: true })
  const path = (query: string) => `/containers/${id}/logs?stdout=1&stderr=1&timestamps=1&${query}`
  const log: Log = {
    print: printer(`http://${await engine.address(id)}:8080`, {}),
    async read(tail, until) {
      const ending = new AbortController()
      try {
        const stream = await engine.stream(path(`tail=${tail}&follow=${tail === 0}`), ending.signal)
        return await readNumbers(stream, engineLine, until)
      } finally {
        ending.abort()
      }
    },
  }
  let next = 1
  return {
    async measure() {
      const live = await throughput(log, next)
      next += followed
      const old = await history(log, next - 1)
      const tail = await timed(() => engine.text(path('tail=100')))
      const wait = await lateness(log, (signal) => engine.stream(path('tail=0&follow=1'), signal), next)
      next += liveLines
      return {
        rate: old.rate,
        followRate: (live.lines / live.ms) * 1000,
        lost: live.missing + live.breaks + old.breaks,
        tail,
        wait,
      }
    },
    close: () => engine.remove(id),
  }
}

const memoryOf = (ours: Ours) => {
  const before = residentMb([ours.pids[0]!])
  let most = before
  const timer = setInterval(() => {
    most = Math.max(most, residentMb([ours.pids[0]!]))
  }, 50)
  return () => {
    clearInterval(timer)
    return most - before
  }
}

const ourSide = async (bench: Bench): Promise<Side> => {
  const ours = await bench.ours()
  const { url } = await bench.sources()
  const id = await makeApplication(ours, await ours.makeEnvironment('figure-3'), 'talking', url)
  await deploy(ours, id)
  await untilRouted(ours, id)
  const host = `${await hostOf(ours, id)}:${ours.routerPort}`
  const open = (query: string, signal: AbortSignal) => {
    const { path, headers, origin } = ours.target('GET', `/application/${id}/log/stream?${query}`)
    return openStream(origin + path, headers, signal)
  }
  const log: Log = {
    print: printer(`http://127.0.0.1:${ours.routerPort}`, { host }),
    async read(tail, until) {
      const ending = new AbortController()
      try {
        return await readNumbers(await open(`tail=${tail}`, ending.signal), eventLine, until)
      } finally {
        ending.abort()
      }
    },
  }
  let next = 1
  return {
    async measure() {
      const memory = memoryOf(ours)
      const live = await throughput(log, next)
      next += followed
      const old = await history(log, next - 1)
      const grown = memory()
      const tail = await timed(() => ours.call('GET', `/application/${id}/log?tail=100`))
      const wait = await lateness(log, (signal) => open('tail=0', signal), next)
      next += liveLines
      const followRate = (live.lines / live.ms) * 1000
      return { rate: old.rate, followRate, lost: live.missing + live.breaks + old.breaks, memory: grown, tail, wait }
    },
  }
}

/**
 * The log of one container through the API, beside the same read straight from the engine. No engine keeps a million
 * lines under the product's caps: what is kept is read several times, and a million lines are followed over the rounds.
 */
export const figure: Figure<Bench> = {
  id: '3',
  rows: [
    { id: '3', what: 'kept log lines read', unit: '1/s', goal: { kind: 'ratioAtLeast', value: 0.9 }, key: 'rate' },
    { id: '3-follow', what: 'lines followed as printed', unit: '1/s', goal: null, key: 'followRate' },
    {
      id: '3-lost',
      what: 'lines lost or out of order',
      unit: 'lines',
      goal: { kind: 'atMost', value: 0 },
      key: 'lost',
      over: 'max',
    },
    { id: '3-live', what: 'live line, p50', unit: 'ms', goal: { kind: 'atMost', value: 5 }, key: 'wait' },
    {
      id: '3-memory',
      what: 'memory added',
      unit: 'MB',
      goal: { kind: 'atMost', value: 20 },
      key: 'memory',
      floorKey: null,
    },
    { id: '3-tail', what: 'tail=100', unit: 'ms', goal: { kind: 'atMost', value: 20 }, key: 'tail' },
  ],
  floor: floorSide,
  ours: ourSide,
}
