/** The effect of sizes of volumes on a cluster, whose engine limits them or only counts them. Pure. */
import type { Workload } from '../../runtimes/runtime.ts'

/** `enforce`: a service whose volumes would have no limit is not deployed. */
export const volumeSizeModes = ['auto', 'enforce'] as const
export type VolumeSizes = (typeof volumeSizeModes)[number]

type Volumes = Workload['volumes']

/** The limit of each volume: see `Runtime.volumeSizes`. */
type Made = ReadonlyMap<string, number | null>

/** Why a cluster is refused for its volumes; null if it limits them, or never said whether it does. */
export const sizeRefusal = (mode: VolumeSizes, limits: boolean | null, volumes: Volumes): string | null => {
  if (mode !== 'enforce' || limits !== false || volumes.length === 0) return null
  return 'The cluster cannot limit the size of volumes, which this server requires (SLIPWAY_VOLUME_SIZES): remove the storage, or clone the service to an environment on another cluster.'
}

/** A volume with another limit than the wanted one, which it cannot get; null if there is none. */
export const changedSize = (volumes: Volumes, made: Made, grows: boolean): string | null => {
  const isWrong = (has: number, wanted: number): boolean => has > wanted || (has < wanted && !grows)
  const changed = volumes.find(({ id, sizeGb }) => isWrong(made.get(id) ?? sizeGb, sizeGb))
  if (changed === undefined) return null
  const { id, mountPath, sizeGb } = changed
  const has = made.get(id)
  const why = grows ? 'volumes of Kubernetes clusters only grow' : 'Docker engines cannot resize volumes'
  return `The volume at ${mountPath} has ${has} GB, and its size cannot be changed to ${sizeGb} GB: ${why}. Set the size back to ${has}, or move the data to new storage.`
}

/** The indexes of volumes without a limit. */
export const unlimitedVolumes = (volumes: Volumes, made: Made, limits: boolean): number[] =>
  volumes.flatMap(({ id }, index) => ((made.has(id) ? made.get(id) === null : !limits) ? [index] : []))

/** The lines in a deployment's log about its volumes. */
export const sizeNotes = (volumes: Volumes, made: Made, limits: boolean, grows: boolean): string[] => {
  const changed = volumes.flatMap(({ id, mountPath, sizeGb }) => {
    const has = made.get(id) ?? sizeGb
    if (has === sizeGb) return []
    return grows && has < sizeGb
      ? [`The volume at ${mountPath} grows from ${has} to ${sizeGb} GB.`]
      : [`The volume at ${mountPath} keeps its size of ${has} GB.`]
  })
  const unlimited = unlimitedVolumes(volumes, made, limits).map((index) => {
    const { mountPath, sizeGb } = volumes[index]!
    const why = limits ? 'it was made without a limit and stays as it is' : 'the cluster cannot limit it'
    return `The size of the volume at ${mountPath} (${sizeGb} GB) is not enforced: ${why}.`
  })
  return [...changed, ...unlimited]
}
