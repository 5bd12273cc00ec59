/**
 * How the engine gets an image: through our own registry on loopback, without a credential and from no other address.
 * An engine that cannot reach our loopback (on another machine, in a virtual one) asks the registry itself, with a
 * token that is valid only for this image; it never gets a password, so a registry that requires one is refused.
 */
import type { AskedImage } from './ask-registry.ts'
import { type EngineImages, registryAuth } from './engine-images.ts'
import type { ImageAccess } from './images.ts'
import { ImageRefused } from './manifest.ts'
import { createPossession } from './possession.ts'
import type { PullThrough } from './pull-through.ts'

/** The engine could not connect to us at all. */
class EngineCannotConnect extends Error {}

export const createEnginePull = (engine: EngineImages, pullThrough: PullThrough, isLocal: boolean) => {
  const possession = createPossession()

  /** Gives what was pulled the name of its organization, and removes its temporary name. */
  const take = async (pulled: string, name: string, pull: () => Promise<void>): Promise<string> => {
    try {
      await pull()
      const found = await engine.find(pulled)
      if (found === null) throw new Error('it was pulled and then removed')
      await engine.tag(found.Id, name)
      return found.Id
    } finally {
      await engine.untag(pulled, false)
    }
  }

  const through = async (
    { organizationId }: ImageAccess,
    asked: AskedImage,
    name: string,
    signal: AbortSignal,
  ): Promise<string> => {
    const ticket = pullThrough.offer(asked)
    const { digest } = asked.manifest
    const either = AbortSignal.any([signal, ticket.failed])
    try {
      return await take(`${ticket.repository}@${digest}`, name, async () => {
        await engine.pull(ticket.repository, digest, either)
        possession.note(organizationId, ticket.served)
        await possession.prove(organizationId, asked, either)
      })
    } catch (error) {
      signal.throwIfAborted()
      if (ticket.failed.aborted) throw ticket.failed.reason
      const { message } = error as Error
      const unreachable =
        !ticket.wasAsked() && /dial tcp|connection refused|no route to host|i\/o timeout/i.test(message)
      throw unreachable ? new EngineCannotConnect(message, { cause: error }) : error
    } finally {
      ticket.end()
    }
  }

  const direct = async (
    { organizationId, repository }: ImageAccess,
    asked: AskedImage,
    name: string,
    signal: AbortSignal,
  ) => {
    const told = await asked.token()
    if (told.kind === 'basic')
      throw new ImageRefused(
        'registry_refused',
        'its registry requires the password, which is not given to an engine that cannot reach this server',
      )
    // Without one the engine would follow the registry to any token service.
    const headers = registryAuth({ registrytoken: told.kind === 'token' ? told.token : 'none' })
    const { digest } = asked.manifest
    // What it fetches by itself is not visible here.
    await possession.prove(organizationId, asked, signal)
    return take(`${repository}@${digest}`, name, () => engine.pull(repository, digest, signal, headers))
  }

  /** Returns the engine's id of what now has the name `name`. */
  return async (access: ImageAccess, asked: AskedImage, name: string, signal: AbortSignal): Promise<string> => {
    if (!isLocal) return direct(access, asked, name, signal)
    try {
      return await through(access, asked, name, signal)
    } catch (error) {
      if (!(error instanceof EngineCannotConnect)) throw error
      return direct(access, asked, name, signal)
    }
  }
}
