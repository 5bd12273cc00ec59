/** F28: Ctrl-C at random moments of the first start of a fresh clone; the next start works, whatever was half-way. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../src/lib/exec.ts'
import { freePort } from '../support/slipway/slipway.ts'
import { until } from '../support/until.ts'
import type { Fault } from './fault.ts'

const root = new URL('../../../', import.meta.url).pathname
const interrupts = Number(process.env.FAULT_INTERRUPTS ?? 10)
const startMs = 240_000

interface Clone {
  folder: string
  env: Record<string, string>
}

/** What is committed, as a stranger gets it. */
const newClone = async (home: string): Promise<Clone> => {
  const folder = join(home, 'clone')
  const { NODE_EXTRA_CA_CERTS: authorities } = process.env
  const env = {
    ...(authorities === undefined ? {} : { NODE_EXTRA_CA_CERTS: authorities }),
    PATH: process.env.PATH ?? '/usr/bin:/bin',
    HOME: process.env.HOME ?? '/root',
    SLIPWAY_PORT: String(await freePort()),
    SLIPWAY_ROUTER_PORT: String(await freePort()),
  }
  const { code, stderr } = await exec('git', ['clone', '--quiet', root, folder], { env, timeoutMs: 60_000 })
  assert.equal(code, 0, stderr)
  return { folder, env }
}

/** A process group of its own, as of a terminal: Ctrl-C reaches all of it. */
const start = ({ folder, env }: Clone) => {
  const child = spawn(join(folder, 'bin/run'), ['main', '--fake'], {
    cwd: folder,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let printed = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (printed += text))
  const ended = once(child, 'exit')
  return {
    printed: () => printed,
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    async interrupt() {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid!, 'SIGINT')
      await ended
    },
  }
}

/** How long until it has said all that a first start says. */
const startWhole = async (clone: Clone): Promise<number> => {
  const fromMs = performance.now()
  const server = start(clone)
  try {
    await until(
      async () => {
        assert.ok(!server.hasEnded(), server.printed())
        return /^Sample /m.test(server.printed())
      },
      { timeoutMs: startMs, what: 'a start that works' },
    )
    assert.match(server.printed(), /^Admin token /m)
    assert.ok(!/could not|cannot|failed/.test(server.printed()), server.printed())
    return performance.now() - fromMs
  } finally {
    await server.interrupt()
  }
}

const leave = async ({ folder, env }: Clone): Promise<void> => {
  if (!existsSync(join(folder, 'node_modules')) || !existsSync(join(folder, '.slipway'))) return
  const { code, stderr } = await exec(join(folder, 'bin/run'), ['reset', '--yes'], {
    cwd: folder,
    env,
    timeoutMs: 60_000,
  })
  assert.equal(code, 0, stderr)
}

/** A clone in which the first start is interrupted after `ms`; without, it is not. */
const tryOnce = async (ms: number | null): Promise<number> => {
  const home = mkdtempSync(join(tmpdir(), 'slipway-first-'))
  try {
    const clone = await newClone(home)
    try {
      if (ms !== null) {
        const first = start(clone)
        const atMs = performance.now() + ms
        await until(async () => performance.now() >= atMs || first.hasEnded(), {
          timeoutMs: startMs,
          what: 'the moment',
        })
        await first.interrupt()
      }
      const took = await startWhole(clone)
      const left = readdirSync(clone.folder).filter((name) => name.startsWith('.install-'))
      assert.deepEqual(left, [], 'what an interrupted install left')
      return took
    } finally {
      await leave(clone)
    }
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

const seconds = (ms: number): string => (ms / 1000).toFixed(1)

const interruptions: Fault = {
  id: 'F28',
  title: 'Ctrl-C at a random moment of the first start is followed by a start that works',
  deadlineMs: 3_600_000,
  async run() {
    const whole = await tryOnce(null)
    const moments: string[] = []
    for (let at = 0; at < interrupts; at += 1) {
      // One in each part of the start, so that none of them is left out.
      const ms = ((at + Math.random()) / interrupts) * whole
      const took = await tryOnce(ms).catch((error: Error) => {
        throw new Error(`after Ctrl-C at ${seconds(ms)} s: ${error.message}`)
      })
      moments.push(`${seconds(ms)} → ${seconds(took)}`)
    }
    return `a first start takes ${seconds(whole)} s; Ctrl-C at … and the next start took … s: ${moments.join(', ')}`
  },
}

export const firstStartFaults: readonly Fault[] = [interruptions]
