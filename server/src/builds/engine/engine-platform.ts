/** What an engine builds for: its own platform. */
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { Platform } from '../preparation/build-plan.ts'

/** Asked once; again when the engine did not answer. */
export const createEnginePlatform = (engine: Engine) => {
  let known: Platform | null = null
  return async (signal: AbortSignal): Promise<Platform> => {
    if (known === null) {
      const { Os, Arch } = await engine.call<{ Os: string; Arch: string }>('GET', '/version', { signal })
      known = { os: Os, architecture: Arch, variant: Arch === 'arm' ? 'v7' : '' }
    }
    return known
  }
}
