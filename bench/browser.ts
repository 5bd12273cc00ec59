/**
 * What the browser itself says of a page: how long interactions took and which frames it dropped, from its trace; what
 * its process holds in memory; how much CPU its processes use. Chromium as in the tests, which draws without a GPU.
 */
import { readFileSync } from 'node:fs'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core'
import { adminToken } from '../server/test/support/slipway/slipway.ts'
import { percentile } from './measure.ts'

interface Frame {
  state: string
  affects_smoothness?: boolean
}

interface TraceEvent {
  name: string
  pid: number
  args?: {
    data?: { interactionId?: number; duration?: number }
    frame_reporter?: Frame
    /** What older versions call it. */
    chrome_frame_reporter?: Frame
  }
}

export interface Traced {
  /** 95 in 100 interactions took at most so long, from the input to the next frame; in steps of 8 ms. */
  p95Ms: number
  longestMs: number
  interactions: number
  /** Of the frames in which something was to be shown, in percent. */
  droppedPercent: number
  frames: number
}

/** `devtools.timeline` has the interactions, `benchmark` the frames. */
const categories = ['devtools.timeline', 'benchmark']

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

/** An interaction is what the browser gives a number: a key, a click, a tap. It takes as long as its longest event. */
const judge = (events: readonly TraceEvent[]): Traced => {
  const took = new Map<number, number>()
  const pages = new Set<number>()
  for (const { name, pid, args } of events) {
    const { interactionId = 0, duration = 0 } = args?.data ?? {}
    if (name !== 'EventTiming' || interactionId === 0) continue
    took.set(interactionId, Math.max(duration, took.get(interactionId) ?? 0))
    pages.add(pid)
  }
  if (took.size === 0) throw new Error('the trace has no interactions')
  // Other processes of the browser have frames too.
  const frames = events
    .filter(({ name, pid }) => name === 'PipelineReporter' && pages.has(pid))
    .flatMap(({ args }) => args?.frame_reporter ?? args?.chrome_frame_reporter ?? [])
  const durations = [...took.values()]
  return {
    p95Ms: percentile(durations, 0.95),
    longestMs: Math.max(...durations),
    interactions: took.size,
    ...countFrames(frames),
  }
}

/** Traces what happens during `work`; rejects if the browser lost a part of the trace. */
export const traced = async (browser: Browser, work: () => Promise<unknown>): Promise<Traced> => {
  const session = await browser.newBrowserCDPSession()
  const events: TraceEvent[] = []
  session.on('Tracing.dataCollected', ({ value }) => {
    for (const event of value as unknown as TraceEvent[])
      if (event.name === 'EventTiming' || event.name === 'PipelineReporter') events.push(event)
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
  page.setDefaultTimeout(30_000)
  await page.goto(`${url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(adminToken)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/o/*')
  return page
}
