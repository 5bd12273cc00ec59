/**
 * What the browser itself says of a page: how long interactions took and which frames it dropped, from its trace; what
 * its process holds in memory; how much CPU its processes use. Chromium as in the tests, which draws without a GPU.
 */
import { readFileSync } from 'node:fs'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core'
import { adminToken } from '../server/test/support/slipway/slipway.ts'
import { percentile } from './measure.ts'

/** How long is waited for what a page is to show. */
export const patienceMs = 120_000

interface Frame {
  state: string
  affects_smoothness?: boolean
}

interface TraceEvent {
  name: string
  pid: number
  tid: number
  /** Microseconds; of a task, with the CPU time of its thread. */
  ts: number
  dur?: number
  tdur?: number
  args?: {
    data?: { interactionId?: number; duration?: number }
    frame_reporter?: Frame
    /** What older versions call it. */
    chrome_frame_reporter?: Frame
  }
}

export interface Traced {
  /** 95 in 100 interactions took at most so long, from the input to the next frame. */
  p95Ms: number
  longestMs: number
  /** 95 in 100 used at most so much CPU time of the page's main thread meanwhile. */
  p95CpuMs: number
  interactions: number
  /** Share of the frames in which something should have been shown, in percent. */
  droppedPercent: number
  /** Frames that the CPU time of the page's own tasks alone left no room for, of as many. */
  ownDroppedPercent: number
  frames: number
}

/** `devtools.timeline` has the interactions, `benchmark` the frames, the third the tasks. */
const categories = ['devtools.timeline', 'benchmark', 'disabled-by-default-devtools.timeline']
const names = new Set(['EventTiming', 'PipelineReporter', 'RunTask'])
const frameMs = 1000 / 60

const presented = new Set(['STATE_PRESENTED_ALL', 'STATE_PRESENTED_PARTIAL'])
const passedOver = 'STATE_NO_UPDATE_DESIRED'

const countFrames = (frames: readonly Frame[]): Pick<Traced, 'droppedPercent' | 'frames'> => {
  const shown = frames.filter(({ state }) => presented.has(state)).length
  const dropped = frames.filter(
    ({ state, affects_smoothness }) => state === 'STATE_DROPPED' && affects_smoothness === true,
  ).length
  const unknown = frames.find(({ state }) => !presented.has(state) && state !== 'STATE_DROPPED' && state !== passedOver)
  if (unknown !== undefined) throw new Error(`the trace has a frame of the unknown state ${unknown.state}`)
  if (shown === 0) throw new Error('the trace has no frames')
  return { droppedPercent: (100 * dropped) / (shown + dropped), frames: shown + dropped }
}

interface Interaction {
  beginMs: number
  ms: number
}

interface Task {
  beginMs: number
  ms: number
  cpuMs: number
}

/** The CPU time of tasks within an interaction; a task that extends beyond it counts in part. */
const cpuWithin = (tasks: readonly Task[], { beginMs, ms }: Interaction): number =>
  tasks.reduce((sum, task) => {
    const within = Math.min(beginMs + ms, task.beginMs + task.ms) - Math.max(beginMs, task.beginMs)
    return within <= 0 ? sum : sum + task.cpuMs * Math.min(1, within / task.ms)
  }, 0)

const framesWithin = (tasks: readonly Task[]): number =>
  tasks.reduce((sum, { cpuMs }) => sum + Math.trunc(cpuMs / frameMs), 0)

/** Tasks of the threads that hear of inputs. */
const tasksOf = (events: readonly TraceEvent[], threads: ReadonlySet<string>): Task[] =>
  events
    .filter(({ name, pid, tid, dur = 0 }) => name === 'RunTask' && dur > 0 && threads.has(`${pid} ${tid}`))
    .map(({ ts, dur = 0, tdur = 0 }) => ({ beginMs: ts / 1000, ms: dur / 1000, cpuMs: tdur / 1000 }))

/** An interaction is what the browser gives a number: a key, a click, a tap. It takes as long as its longest event. */
const judge = (events: readonly TraceEvent[]): Traced => {
  const took = new Map<number, Interaction>()
  const pages = new Set<number>()
  const threads = new Set<string>()
  for (const { name, pid, tid, ts, args } of events) {
    const { interactionId = 0, duration = 0 } = args?.data ?? {}
    if (name !== 'EventTiming' || interactionId === 0) continue
    if (duration >= (took.get(interactionId)?.ms ?? 0)) took.set(interactionId, { beginMs: ts / 1000, ms: duration })
    pages.add(pid)
    threads.add(`${pid} ${tid}`)
  }
  if (took.size === 0) throw new Error('the trace has no interactions')
  const tasks = tasksOf(events, threads)
  if (tasks.every(({ cpuMs }) => cpuMs === 0)) throw new Error('the trace has no tasks')
  // Other processes of the browser have frames too.
  const frames = events
    .filter(({ name, pid }) => name === 'PipelineReporter' && pages.has(pid))
    .flatMap(({ args }) => args?.frame_reporter ?? args?.chrome_frame_reporter ?? [])
  const interactions = [...took.values()]
  const durations = interactions.map(({ ms }) => ms)
  const counted = countFrames(frames)
  return {
    p95Ms: percentile(durations, 0.95),
    longestMs: Math.max(...durations),
    p95CpuMs: percentile(
      interactions.map((each) => cpuWithin(tasks, each)),
      0.95,
    ),
    interactions: took.size,
    ...counted,
    ownDroppedPercent: (100 * framesWithin(tasks)) / counted.frames,
  }
}

/** Traces what happens during `work`; rejects if the browser lost a part of the trace. */
export const traced = async (browser: Browser, work: () => Promise<unknown>): Promise<Traced> => {
  const session = await browser.newBrowserCDPSession()
  const events: TraceEvent[] = []
  session.on('Tracing.dataCollected', ({ value }) => {
    for (const event of value as unknown as TraceEvent[]) if (names.has(event.name)) events.push(event)
  })
  const traceConfig = { includedCategories: categories, excludedCategories: ['*'], traceBufferSizeInKb: 400_000 }
  await session.send('Tracing.start', { traceConfig, transferMode: 'ReportEvents' })
  let isWhole = false
  try {
    await work()
  } finally {
    const done = new Promise<boolean>((resolve) =>
      session.once('Tracing.tracingComplete', ({ dataLossOccurred }) => resolve(!dataLossOccurred)),
    )
    await session.send('Tracing.end')
    isWhole = await done
    await session.detach()
  }
  if (!isWhole) throw new Error('the browser lost a part of its trace')
  return judge(events)
}

const proportionalKb = (pid: number): number =>
  Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? Number.NaN)

const processesOf = async (browser: Browser) => {
  const session = await browser.newBrowserCDPSession()
  const { processInfo } = await session.send('SystemInfo.getProcessInfo')
  await session.detach()
  return processInfo
}

/** CPU seconds that all processes of the browser have used so far. */
export const browserSeconds = async (browser: Browser): Promise<number> =>
  (await processesOf(browser)).reduce((sum, { cpuTime }) => sum + cpuTime, 0)

/** MB that the process of the page holds, as it is: that of the largest page of the browser. */
export const heldMb = async (browser: Browser): Promise<number> => {
  const pages = (await processesOf(browser)).filter(({ type }) => type === 'renderer')
  return (Math.max(...pages.map(({ id }) => proportionalKb(id))) * 1024) / 1e6
}

/** The same after it has cleaned up. */
export const memoryMb = async (browser: Browser, session: CDPSession): Promise<number> => {
  await session.send('HeapProfiler.collectGarbage')
  return heldMb(browser)
}

/** 10 Mbit/s with a round trip of 40 ms; nothing is kept from before. */
export const throttle = async (session: CDPSession): Promise<void> => {
  await session.send('Network.enable')
  await session.send('Network.setCacheDisabled', { cacheDisabled: true })
  await session.send('Network.emulateNetworkConditions', {
    offline: false,
    latency: 40,
    downloadThroughput: 10e6 / 8,
    uploadThroughput: 10e6 / 8,
  })
}

/** A page that is signed in as the operator. */
export const signedIn = async (context: BrowserContext, url: string): Promise<Page> => {
  const page = await context.newPage()
  // A busy machine is slow: the numbers say so, not an error.
  page.setDefaultTimeout(patienceMs)
  await page.goto(`${url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(adminToken)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/o/*')
  return page
}
