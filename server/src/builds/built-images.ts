/** The images that this installation has built, for `npm run reset`. */
import { type Engine, isEngineError } from '../lib/docker-engine.ts'

/** Removes them all; one that a container of somebody else's uses stays. */
export const removeBuiltImages = async (engine: Engine, ownerId: string): Promise<void> => {
  const query = { filters: JSON.stringify({ label: [`slipway.build=${ownerId}`] }) }
  const images = await engine.call<{ Id: string }[]>('GET', '/images/json', { query })
  for (const { Id } of images)
    await engine.call('DELETE', `/images/${Id}`, { query: { force: true } }).catch((error: unknown) => {
      if (!isEngineError(error, 404, 409)) throw error
    })
}
