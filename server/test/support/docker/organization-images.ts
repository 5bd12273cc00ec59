/** Images of organizations over the real engine, as wiring/docker-machine.ts wires them, for tests that start no whole server. */
import type { RegistryLogins } from '../../../src/images/images.ts'
import { createOrganizationImages, markOf } from '../../../src/images/organization-images.ts'
import { startPullThrough } from '../../../src/images/pull-through.ts'
import { defaultConnection } from '../../../src/lib/docker/engine-connection.ts'
import { newId } from '../../../src/lib/ids.ts'
import { createOutbound, type Outbound, type Resolve } from '../../../src/lib/net/outbound.ts'
import { systemClock } from '../../../src/lib/time/clock.ts'

export interface TestImagesOptions {
  allow?: readonly string[]
  resolve?: Resolve
  outbound?: Outbound
  engineImages?: readonly string[]
  registryLogins?: RegistryLogins
  maxMb?: number
  dockerHost?: string
  disk?: Parameters<typeof createOrganizationImages>[0]['disk']
}

export const startImages = async (options: TestImagesOptions = {}) => {
  const pullThrough = await startPullThrough(markOf(newId()))
  const { resolve, dockerHost } = options
  const own = [pullThrough.address]
  const images = createOrganizationImages({
    connection: defaultConnection(dockerHost),
    outbound: options.outbound ?? createOutbound({ allow: options.allow ?? ['loopback'], own, resolve }),
    pullThrough,
    registryLogins: options.registryLogins ?? (async () => []),
    engineImages: options.engineImages ?? ['*'],
    maxMb: options.maxMb ?? 10_240,
    clock: systemClock,
    ...(options.disk === undefined ? {} : { disk: options.disk }),
  })
  const organizations = new Set<string>()
  return {
    ...images,
    pull(...values: Parameters<typeof images.pull>) {
      organizations.add(values[0].organizationId)
      return images.pull(...values)
    },
    address: pullThrough.address,
    /** After this, the engine cannot connect there. */
    closeServer: pullThrough.close,
    /** What was pulled goes with it. */
    async close() {
      for (const id of organizations) await images.sweep(id, [], -1, AbortSignal.timeout(30_000))
      await images.close()
      await pullThrough.close()
    },
  }
}

export type TestImages = Awaited<ReturnType<typeof startImages>>

/** For a runtime that is made before the images are. */
export const handed = (later: () => TestImages): TestImages =>
  new Proxy({} as TestImages, { get: (_, name) => Reflect.get(later(), name) })
