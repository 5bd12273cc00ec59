/** From a service's configured image to a reference with its registry's host, and the login. */

import { isHub } from '../../lib/docker/registry-session.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'
import type { ImageRequest } from '../../runtimes/images.ts'
import type { Source } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'
import { loginOf } from './registry-credentials.ts'

export type ImageSource = Extract<Source, { from: 'image' }>

const hub = 'docker.io'

/** The repository of an image with its registry's host, as engines write it; `url` null means the public one. */
export const repositoryOf = (url: string | null, name: string): string => {
  const host = url === null ? hub : new URL(url).host
  if (!isHub(host)) return `${host}/${name}`
  // Images that this server built have names of this form on the engine, for any organization.
  if (name.startsWith('slipway/'))
    throw new DeploymentError(
      'image_missing',
      `The image ${name} cannot be pulled: this name is reserved for built images.`,
    )
  return `${hub}/${name.includes('/') ? name : `library/${name}`}`
}

const checkAddress = async (parts: DeploymentParts, url: string): Promise<void> => {
  try {
    await parts.checkAddress(new URL(url))
  } catch (error) {
    if (error instanceof OutboundRefused)
      throw new DeploymentError('registry_refused', `The address of the registry cannot be used: ${error.message}`)
    // A name without an address: the request to the registry will report that.
  }
}

/** Name with the host, address and login of a source's registry. Rejects with a `DeploymentError`. */
export const openRegistry = async (
  parts: DeploymentParts,
  organizationId: string,
  { registryId, name }: Pick<ImageSource, 'registryId' | 'name'>,
): Promise<{ repository: string } & Pick<ImageRequest, 'origin' | 'login'>> => {
  if (registryId === null) return { repository: repositoryOf(null, name), origin: null, login: null }
  const registry = await parts.registryCredentials(organizationId, registryId)
  if (registry === null)
    throw new DeploymentError(
      'registry_missing',
      'The container registry of this service has been deleted: choose another one.',
    )
  await checkAddress(parts, registry.url)
  const { repository, origin } = { repository: repositoryOf(registry.url, name), origin: new URL(registry.url) }
  return { repository, origin, login: loginOf(registry) }
}
