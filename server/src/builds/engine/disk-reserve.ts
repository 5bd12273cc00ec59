/** Stops builds and pulls that fill the engine's disk before everything else on it fails. */
import { statfs } from 'node:fs/promises'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { cachedFor } from '../../lib/time/cached.ts'
import { systemClock } from '../../lib/time/clock.ts'

const pollMs = 1000

export interface DiskReserve {
  /** Runs `work`; aborts its signal with a `DeploymentError` when the disk is nearly full. */
  watch<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T>
}

/** Megabytes available to users other than root; null if the folder is not on this machine. */
const freeMb = async (folder: string): Promise<number | null> => {
  try {
    const { bavail, bsize } = await statfs(folder)
    return Math.floor((bavail * bsize) / 2 ** 20)
  } catch {
    return null
  }
}

interface DiskReserveParts {
  engine: Engine
  /** Whether the engine runs on this machine: the disk of another machine cannot be read from here. */
  isLocal: boolean
  reserveMb: number
  /** The error for what needs the room; default: that of a build. */
  refusal?(reserveMb: number): DeploymentError
  free?(folder: string): Promise<number | null>
}

const stoppedBuild = (reserveMb: number): DeploymentError =>
  new DeploymentError(
    'build_failed',
    `The build was stopped: the engine's disk has less than ${reserveMb} MB left (SLIPWAY_DISK_RESERVE_MB). Delete services that are not used, or ask the operator to free space.`,
  )

/** For images of registries. */
export const stoppedPull = (reserveMb: number): DeploymentError =>
  new DeploymentError(
    'disk_full',
    `The image was not pulled: the engine's disk has less than ${reserveMb} MB left (SLIPWAY_DISK_RESERVE_MB). Delete services that are not used, or ask the operator to free space.`,
  )

export const createDiskReserve = (parts: DiskReserveParts): DiskReserve => {
  const { engine, isLocal, reserveMb, refusal = stoppedBuild, free = freeMb } = parts
  const readInfo = cachedFor(systemClock, Infinity, () => engine.call<{ DockerRootDir: string }>('GET', '/info'))

  const refuse = async (): Promise<void> => {
    const left = await free((await readInfo()).DockerRootDir)
    if (left === null || left >= reserveMb) return
    throw refusal(reserveMb)
  }

  return {
    async watch(work, signal) {
      if (!isLocal || reserveMb === 0) return work(signal)
      await refuse()
      const control = new AbortController()
      const timer = setInterval(() => {
        refuse().catch((error: unknown) => {
          if (error instanceof DeploymentError) control.abort(error)
        })
      }, pollMs)
      try {
        return await work(AbortSignal.any([signal, control.signal]))
      } finally {
        clearInterval(timer)
      }
    },
  }
}
