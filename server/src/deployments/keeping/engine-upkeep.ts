/**
 * What is removed from the engine of one cluster because nothing needs it any more. Runs where the cluster is looked
 * after, by one server at a time, and not while an operator has to decide whose cluster it is (clusters/lines).
 */
import type { Cluster } from '../../clusters/clusters.ts'
import type { DeploymentParts } from '../parts.ts'
import { onEngineSql, removeUnneeded } from './built-images.ts'
import { keepingOf } from './keep.ts'
import { readStrays, removeOldLayers } from './layers.ts'

const hourMs = 3_600_000
/** Listing all images of an engine takes a while. */
const layersMs = hourMs / 6

type Parts = Pick<DeploymentParts, 'database' | 'clock' | 'keeping'>

/** Caches of build steps that are old, or left by organizations that built here and are gone. */
const tidyCaches = async ({ database }: Parts, { key, builder }: Cluster, signal: AbortSignal): Promise<void> => {
  if (builder.tidyCaches === undefined) return
  const rows = await database.query<{ id: string }>(
    `select distinct b.cluster_id as id from build_cache b where ${onEngineSql('b')}`,
    [key],
  )
  for (const { id } of rows) {
    signal.throwIfAborted()
    await builder.tidyCaches(id)
  }
}

/** Each call removes images; every ten minutes also layers, and once an hour what is left by accident. */
export const createEngineUpkeep = (parts: Parts, cluster: Cluster) => {
  const { database, clock } = parts
  const { builder } = cluster
  let layersDueMs = Number.NEGATIVE_INFINITY
  let dueMs = Number.NEGATIVE_INFINITY
  /** Found an hour ago: a build gives an image its name a moment before it writes the row. */
  let suspects = new Set<string>()

  const removeStrays = async (signal: AbortSignal): Promise<void> => {
    if (builder.images === undefined || builder.forget === undefined) return
    const strays = await readStrays(database, await builder.images(signal))
    const idOf = ({ organizationId, imageId }: (typeof strays)[number]) => `${organizationId} ${imageId}`
    for (const stray of strays)
      if (suspects.has(idOf(stray))) await builder.forget(stray.organizationId, [stray.imageId])
    suspects = new Set(strays.map(idOf))
  }

  const removeRest = async (signal: AbortSignal): Promise<void> => {
    if (clock.monotonicMs() < layersDueMs) return
    await removeOldLayers(database, cluster, keepingOf(parts), null, signal)
    layersDueMs = clock.monotonicMs() + layersMs
    if (clock.monotonicMs() < dueMs) return
    await removeStrays(signal)
    await tidyCaches(parts, cluster, signal)
    dueMs = clock.monotonicMs() + hourMs
  }

  return async (signal: AbortSignal): Promise<void> => {
    try {
      await removeUnneeded(database, cluster, null, signal)
    } finally {
      await removeRest(signal)
    }
  }
}
