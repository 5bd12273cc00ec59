/**
 * Base images by the engine's own pull: what the operator put on the engine under a public official name, or what a
 * registry that may be reached gives. Each is held under a name of the organization's, and the registry's name is let go.
 */
import { createHash } from 'node:crypto'
import { createEngine, ignoreGone } from '../lib/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import { joinTag } from '../lib/image-name.ts'
import { OutboundFailed, OutboundRefused } from '../lib/outbound.ts'
import type { ImageAccess, PulledImages } from './base-image.ts'
import type { CheckHost } from './git-remote.ts'
import { findImage, finish } from './own-busybox.ts'

const pullMs = 20 * 60_000
const official = 'docker.io/library/'

const headersOf = ({ repository, login }: ImageAccess): Record<string, string> => {
  if (login === null) return {}
  const text = JSON.stringify({ ...login.reveal(), serveraddress: repository.split('/')[0] })
  return { 'x-registry-auth': Buffer.from(text).toString('base64').replaceAll('+', '-').replaceAll('/', '_') }
}

export const createPullsByEngine = (dockerHost: string | undefined, checkHost: CheckHost): PulledImages => {
  const engine = createEngine(dockerHost)

  const check = async (access: ImageAccess): Promise<void> => {
    try {
      await checkHost(access.origin ?? new URL(`https://${access.repository.split('/')[0]}/`))
    } catch (error) {
      if (!(error instanceof OutboundRefused || error instanceof OutboundFailed)) throw error
      throw new DeploymentError('registry_refused', error.message, { cause: error })
    }
  }

  const pull = async (access: ImageAccess, signal: AbortSignal): Promise<string> => {
    const { repository, tag } = access
    await check(access)
    const query = { fromImage: repository, tag }
    const options = { query, headers: headersOf(access), signal, deadlineMs: pullMs }
    try {
      await finish(await engine.stream('POST', '/images/create', options))
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof DeploymentError) throw error
      throw new DeploymentError('image_unreachable', (error as Error).message.slice(0, 300), { cause: error })
    }
    const id = await findImage(engine, joinTag(repository, tag), signal)
    if (id === null) throw new DeploymentError('image_missing', 'the engine does not have it afterwards.')
    return id
  }

  return {
    async pull(access, progress, signal) {
      const { repository, tag, organizationId } = access
      const held = repository.startsWith(official)
        ? await findImage(engine, joinTag(repository.slice(official.length), tag), signal)
        : null
      if (held !== null) return { imageId: held, reference: held }
      progress(`Pulling the base image ${joinTag(repository, tag)}`)
      const imageId = await pull(access, signal)
      const name = createHash('sha256').update(joinTag(repository, tag)).digest('hex').slice(0, 32)
      const query = { repo: `slipway/${organizationId}/pulled`, tag: name }
      await engine.call('POST', `/images/${imageId}/tag`, { query, signal })
      await ignoreGone(engine.call('DELETE', `/images/${encodeURIComponent(joinTag(repository, tag))}`))
      return { imageId, reference: imageId }
    },
  }
}
