/**
 * What the figures share, each part started when the first figure asks for it: PostgreSQL, the load generator, the
 * floor's and our server, a git server, the image. `close` ends every process, container and folder made here.
 */
import { chmodSync, mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FloorApi } from './floors/api-process.ts'
import { startFloorApi } from './floors/api-process.ts'
import { createEngine, type Engine } from './floors/engine.ts'
import { type Load, startLoad } from './load-client.ts'
import type { Ours } from './ours.ts'
import { type BenchPostgres, startBenchPostgres } from './postgres.ts'
import { type Sources, startSources } from './sources.ts'
import { once } from './subject.ts'

export interface Bench {
  /** A folder of this run, removed at its end. */
  folder: string
  engine: Engine
  load(): Promise<Load>
  postgres(): Promise<BenchPostgres>
  floorApi(): Promise<FloorApi>
  ours(): Promise<Ours>
  /** The git server with the example's repository, and the base image. */
  sources(): Promise<Sources>
  /** Runs at the end, last registered first. */
  onClose(close: () => Promise<unknown>): void
  close(): Promise<void>
}

export const openBench = (): Bench => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-bench-'))
  chmodSync(folder, 0o755)
  const closers: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })]
  const engine = createEngine()
  closers.push(async () => {
    await engine.removeOwn()
    await engine.close()
  })
  const kept = <T>(make: () => Promise<T>, close: (made: T) => Promise<unknown>) =>
    once(async () => {
      const made = await make()
      closers.push(() => close(made))
      return made
    })
  const bench: Bench = {
    folder,
    engine,
    load: kept(
      async () => startLoad(),
      (load) => load.close(),
    ),
    postgres: kept(
      () => startBenchPostgres(join(folder, 'database')),
      (postgres) => postgres.stop(),
    ),
    floorApi: kept(
      () => startFloorApi(bench),
      (api) => api.stop(),
    ),
    ours: kept(
      // Loaded when asked for: a server that cannot be loaded must not end the floors.
      async () => (await import('./ours.ts')).startOurs(bench),
      (ours) => ours.stop(),
    ),
    sources: kept(
      () => startSources(bench),
      (sources) => sources.stop(),
    ),
    onClose: (close) => void closers.push(close),
    async close() {
      for (const close of closers.reverse()) {
        try {
          await close()
        } catch (error) {
          console.error(`cleaning up: ${(error as Error).message}`)
        }
      }
    },
  }
  return bench
}
