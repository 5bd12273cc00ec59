/**
 * How the router treats requests to running services. The users of a policy are in the release's sealed environment,
 * which is opened once for each release and not at each check: a release never changes.
 */
import type { Policy } from '../../router/policy.ts'
import type { DeploymentParts } from '../parts.ts'
import { openRelease } from '../release/releases.ts'
import { type IngressSettings, needsUsers, policyOf } from '../traffic/ingress-settings.ts'

export interface Policies {
  of(release: { serviceId: string; releaseId: string; ingress: IngressSettings }): Promise<Policy | undefined>
  /** Forgets those of all other services. */
  keep(serviceIds: ReadonlySet<string>): void
}

export const createPolicies = ({ database, sealer }: Pick<DeploymentParts, 'database' | 'sealer'>): Policies => {
  const known = new Map<string, { releaseId: string; policy: Policy | undefined }>()
  return {
    async of({ serviceId, releaseId, ingress }) {
      if (!needsUsers(ingress)) return policyOf(ingress, {})
      const found = known.get(serviceId)
      if (found?.releaseId === releaseId) return found.policy
      const opened = await openRelease(database, sealer, releaseId)
      const policy = policyOf(ingress, opened?.environment.env ?? {})
      if (opened !== null) known.set(serviceId, { releaseId, policy })
      return policy
    },
    keep(serviceIds) {
      for (const id of known.keys()) if (!serviceIds.has(id)) known.delete(id)
    },
  }
}
