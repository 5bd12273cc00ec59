/**
 * Credentials with the kubeconfig of a Kubernetes cluster: their field, and the connection to the cluster before they
 * are stored. Promises that the cluster of stored credentials was reached, is new enough, and grants all rights that
 * we need.
 */
import type { Context } from '../../api/operations/operation.ts'
import { Maybe, Secret } from '../../api/operations/schema.ts'
import { idOfKubernetes, refuseMissing } from '../../clusters/kubernetes.ts'
import { badRequest, invalidField } from '../../lib/errors.ts'
import {
  KubeconfigRefused,
  type KubernetesAccess,
  longestKubeconfig,
  parseKubeconfig,
} from '../../lib/kubernetes/kubeconfig.ts'
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'
import type { Secret as Sealed } from '../../lib/secret.ts'
import type { MachineFacts } from './engine-claims.ts'

const field = 'kubeconfig'

export const kubernetesFields = {
  [field]: Maybe({
    ...Secret(longestKubeconfig),
    description:
      'Kubeconfig of the clusters that use these credentials, as YAML or JSON: one server with https, and a token or a client certificate inline. The connection and its rights are tested before it is stored; empty removes it.',
  }),
}

export const kubernetesForm = { objectType: 'OTHER', choice: 'kubernetes', needs: [field] }

const leastMinor = 28
const checkMs = 10_000

/** Why a cluster of this version is refused; null if it is accepted. */
export const refuseVersion = (version: string): string | null => {
  const [, major, minor] = /^v(\d{1,3})\.(\d{1,3})/.exec(version) ?? []
  if (minor === undefined) return 'The cluster does not say which version of Kubernetes it has.'
  if (Number(major) > 1 || Number(minor) >= leastMinor) return null
  return `Kubernetes ${major}.${minor} is too old: the cluster must have 1.${leastMinor} or later.`
}

const read = (text: string): Promise<KubernetesAccess> =>
  parseKubeconfig(text).catch((error: unknown) => {
    throw error instanceof KubeconfigRefused ? invalidField(`/${field}`, error.message) : error
  })

/** Connects to a cluster and reads its identity; throws the caller's error. */
export const identifyKubernetes = async ({ parts }: Context, kubeconfig: Sealed): Promise<MachineFacts> => {
  const { openKubernetes } = parts.clusters
  if (openKubernetes === null) throw badRequest('This server connects only to its own Docker engine.')
  const kubernetes = await openKubernetes(await read(kubeconfig.reveal()))
  try {
    const facts = await kubernetes.look(undefined, checkMs)
    const refusal = refuseVersion(facts.version)
    if (refusal !== null) throw invalidField(`/${field}`, refusal)
    refuseMissing(facts)
    return { id: idOfKubernetes(facts.uid!), version: facts.version }
  } catch (error) {
    throw error instanceof KubernetesError ? invalidField(`/${field}`, error.message) : error
  } finally {
    await kubernetes.close()
  }
}
