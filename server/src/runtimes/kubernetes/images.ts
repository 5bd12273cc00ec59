/**
 * Images of a cluster's services: its machines pull by themselves, by digest and with a login that is stored with the
 * workload. Nothing is held for an organization here.
 */
import { askDigest, explain } from '../../images/ask-registry.ts'
import type { ImageAccess, RegistryLogins } from '../../images/images.ts'
import { joinTag, splitTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import type { ImageRequest, Images } from '../images.ts'
import type { PullLogin } from './manifests/describe.ts'

interface ImagesParts {
  outbound: Outbound
  registryLogins: RegistryLogins
}

export interface KubernetesImages extends Images {
  /** The logins with which the machines pull an image for an organization. */
  loginsFor(organizationId: string, reference: string): Promise<PullLogin[]>
}

const lookUpDeadlineMs = 5000
const holdDeadlineMs = 30_000
const mostLogins = 5

const isPinned = (reference: string): boolean => /^[^@]+\/[^@]+@sha256:[0-9a-f]{64}$/.test(reference)

const accessOf = ({ organizationId, reference, origin, login }: ImageRequest): ImageAccess => {
  const { name: repository, tag } = splitTag(reference)
  return { organizationId, repository, tag, origin, login }
}

const builtElsewhere = (): DeploymentError =>
  new DeploymentError(
    'image_missing',
    'The image was built on a Docker engine and is in no registry, so a Kubernetes cluster cannot pull it.',
  )

export const createImages = ({ outbound, registryLogins }: ImagesParts): KubernetesImages => {
  const ask = async (image: ImageRequest, signal: AbortSignal): Promise<string> => {
    const access = accessOf(image)
    try {
      return joinTag(access.repository, await askDigest(outbound, access, signal))
    } catch (error) {
      signal.throwIfAborted()
      throw explain(access, error)
    }
  }
  return {
    async resolve(image, signal) {
      const limited = AbortSignal.any([signal, AbortSignal.timeout(lookUpDeadlineMs)])
      try {
        return await ask(image, limited)
      } catch (error) {
        signal.throwIfAborted()
        if (limited.aborted || (error instanceof DeploymentError && error.code !== 'image_denied')) return null
        throw error
      }
    },
    isHeld: async (_organizationId, reference) => isPinned(reference),
    async hold(image, progress, signal) {
      signal.throwIfAborted()
      const { reference, refresh } = image
      if (!refresh && isPinned(reference)) return reference
      if (reference.startsWith('sha256:')) throw builtElsewhere()
      progress(`Looking up image ${reference} in its registry.`)
      const late = AbortSignal.timeout(holdDeadlineMs)
      return ask(image, AbortSignal.any([signal, late])).catch((error: unknown) => {
        signal.throwIfAborted()
        if (!late.aborted) throw error
        const message = `Image ${reference} cannot be pulled: its registry does not answer.`
        throw new DeploymentError('image_unreachable', message, { cause: error })
      })
    },
    owners: async () => [],
    drop: async () => {},
    sweep: async () => {},
    async loginsFor(organizationId, reference) {
      const { name: repository } = splitTag(reference)
      const host = repository.slice(0, Math.max(0, repository.indexOf('/')))
      const logins = await registryLogins(organizationId, host)
      return logins.flatMap(({ login }) => (login === null ? [] : [{ repository, login }])).slice(0, mostLogins)
    },
  }
}
