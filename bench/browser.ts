/**
 * What the browser itself says of a page: how long interactions took and which frames it dropped, from its trace, and
 * what its process holds in memory. Chromium as in the tests.
 */
import { readFileSync } from 'node:fs'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core'
import { adminToken } from '../server/test/support/slipway/slipway.ts'
import { percentile } from './measure.ts'

interface TraceEvent {
  name: string
  args?: {
    data?: { interactionId?: number; duration?: number }
    chrome_frame_reporter?: { state?: string; affects_smoothness?: boolean }
  }
}

export interface Traced {
  /** 95 in 100 interactions took at most so long, from the input to the next frame. */
  p95Ms: number
  interactions: number
  /** Of the frames in which something was to be shown, in percent. */
  droppedPercent: number
  frames: number
}

const categories = ['-*', 'devtools.timeline', 'benchmark', 'cc']

const judge = (events: readonly TraceEvent[]): Traced => {
  const took = new Map<number, number>()
  let frames = 0
  let dropped = 0
  for (const { name, args } of events) {
    const { interactionId = 0, duration = 0 } = args?.data ?? {}
    if (name === 'EventTiming' && interactionId > 0)
      took.set(interactionId, Math.max(duration, took.get(interactionId) ?? 0))
    const frame = name === 'PipelineReporter' ? args?.chrome_frame_reporter : undefined
    if (frame === undefined || frame.state === 'STATE_NO_UPDATE_DESIRED') continue
    frames += 1
    if (frame.state === 'STATE_DROPPED' && frame.affects_smoothness === true) dropped += 1
  }
  return {
    p95Ms: percentile([...took.values()], 0.95),
    interactions: took.size,
    droppedPercent: frames === 0 ? Number.NaN : (100 * dropped) / frames,
    frames,
  }
}

/** Traces what happens during `work`. */
export const traced = async (browser: Browser, work: () => Promise<void>): Promise<Traced> => {
  const session = await browser.newBrowserCDPSession()
  const events: TraceEvent[] = []
  session.on('Tracing.dataCollected', ({ value }) => {
    for (const event of value as unknown as TraceEvent[])
      if (event.name === 'EventTiming' || event.name === 'PipelineReporter') events.push(event)
  })
  await session.send('Tracing.start', { traceConfig: { includedCategories: categories }, transferMode: 'ReportEvents' })
  try {
    await work()
  } finally {
    const done = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve))
    await session.send('Tracing.end')
    await done
    await session.detach()
  }
  return judge(events)
}

const proportionalKb = (pid: number): number =>
  Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? Number.NaN)

/** MB that the process of the page holds after it has cleaned up: that of the largest page of the browser. */
export const memoryMb = async (browser: Browser, session: CDPSession): Promise<number> => {
  await session.send('HeapProfiler.collectGarbage')
  const whole = await browser.newBrowserCDPSession()
  const { processInfo } = await whole.send('SystemInfo.getProcessInfo')
  await whole.detach()
  const pages = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => proportionalKb(id))
  return (Math.max(...pages) * 1024) / 1e6
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
