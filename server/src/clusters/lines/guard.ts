/** A runtime, and a builder, that change nothing while their cluster is not known to be this database's. */
import type { ImageBuilder } from '../../builds/builder.ts'
import type { Images } from '../../runtimes/images.ts'
import type { Ingress } from '../../runtimes/ingress.ts'
import type { Runtime } from '../../runtimes/runtime.ts'
import type { Line } from './line.ts'

type Call<A extends unknown[], T> = (...values: A) => Promise<T>

const after =
  <A extends unknown[], T>(line: Line, call: Call<A, T>): Call<A, T> =>
  async (...values) => {
    await line.ready()
    return call(...values)
  }

const guardIngress = (line: Line, ingress: Ingress): Ingress => ({
  ...ingress,
  publish: after(line, ingress.publish),
  unpublish: after(line, ingress.unpublish),
  keep: (publication) => {
    if (line.conflict() === null) ingress.keep(publication)
  },
})

const guardImages = (line: Line, images: Images): Images => ({
  ...images,
  hold: after(line, images.hold),
  drop: after(line, images.drop),
  sweep: after(line, images.sweep),
})

/** Every call that changes something waits until the line is known, and is refused while there is a conflict. */
export const guardRuntime = (line: Line, runtime: Runtime): Runtime => ({
  ...runtime,
  ingress: guardIngress(line, runtime.ingress),
  images: guardImages(line, runtime.images),
  converge: after(line, runtime.converge),
  resize: after(line, runtime.resize),
  removeEnvironment: after(line, runtime.removeEnvironment),
  run: after(line, runtime.run),
  pipe: after(line, runtime.pipe),
  stopTask: after(line, runtime.stopTask),
  endTask: after(line, runtime.endTask),
  async keepAlive(signal) {
    const lost = await line.untilReady(signal).catch(() => null)
    if (lost === null) return
    await runtime.keepAlive(AbortSignal.any([signal, lost]))
  },
})

type ClusterBuilder = Omit<ImageBuilder, 'close'>

export const guardBuilder = (line: Line, builder: ClusterBuilder): ClusterBuilder => {
  const { forget, removeLayers, tidyCaches } = builder
  return {
    ...builder,
    build: after(line, builder.build),
    ...(forget && { forget: after(line, forget) }),
    ...(removeLayers && { removeLayers: after(line, removeLayers) }),
    ...(tidyCaches && { tidyCaches: after(line, tidyCaches) }),
  }
}
