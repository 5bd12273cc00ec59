/** The platform that an engine builds for, its own, and its abilities. */
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { Platform } from '../preparation/build-plan.ts'

export interface EnginePlatform extends Platform {
  /** Whether an image may have a start interval of its health check (API 1.44). */
  knowsStartInterval: boolean
}

interface Version {
  Os: string
  Arch: string
  ApiVersion?: string
}

/** Asked once; again when the engine did not answer. */
export const createEnginePlatform = (engine: Engine) => {
  let known: EnginePlatform | null = null
  return async (signal: AbortSignal): Promise<EnginePlatform> => {
    if (known === null) {
      const { Os, Arch, ApiVersion = '' } = await engine.call<Version>('GET', '/version', { signal })
      const [, major, minor] = /^(\d{1,4})\.(\d{1,4})$/.exec(ApiVersion) ?? []
      const knowsStartInterval = Number(major) * 1000 + Number(minor) >= 1044
      known = { os: Os, architecture: Arch, variant: Arch === 'arm' ? 'v7' : '', knowsStartInterval }
    }
    return known
  }
}
