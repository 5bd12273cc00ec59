/** Where the domains of a service are in the API: the same for all kinds, so the types are those of one of them. */
import type * as read from '../../api/queries.ts'

export const domainPath = (kind: read.Kind) =>
  `/${kind}/{containerId}/customDomain` as '/container/{containerId}/customDomain'

export const oneDomainPath = (kind: read.Kind) =>
  `${domainPath(kind)}/{customDomainId}` as '/container/{containerId}/customDomain/{customDomainId}'
