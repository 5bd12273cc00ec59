/** Turns the outputs of a module that has made a cluster into a login for this server: checked, and claimed. */
import type { Parts } from '../../../api/parts.ts'
import { idOfKubernetes, refuseMissing } from '../../../clusters/kubernetes.ts'
import type { ClusterModule } from '../../../clusters/modules.ts'
import type { Output } from '../../../deployments/deployments.ts'
import { ApiError, DeploymentError } from '../../../lib/errors.ts'
import { KubeconfigRefused, longestKubeconfig, parseKubeconfig } from '../../../lib/kubernetes/kubeconfig.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Secret } from '../../../lib/secret.ts'
import type { MachineFacts } from '../engine-claims.ts'
import { refuseVersion } from '../kubernetes-credentials.ts'

const refuse = (why: string): DeploymentError => new DeploymentError('module_output', why)

const isPem = (text: string): boolean => text.includes('-----BEGIN')

const configOf = (server: string, token: string, ca: string | undefined): string => {
  const authority = ca === undefined || ca === '' ? {} : { 'certificate-authority-data': isPem(ca) ? btoa(ca) : ca }
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'cluster', cluster: { server, ...authority } }],
    users: [{ name: 'slipway', user: { token } }],
    contexts: [{ name: 'slipway', context: { cluster: 'cluster', user: 'slipway' } }],
    'current-context': 'slipway',
  })
}

/**
 * The values of `kubeconfig` and `token` if these outputs are not marked as secrets, so that the tool has printed
 * them. Pure.
 */
export const openOutputs = ({ outputs: { kubeconfig, token } }: ClusterModule, told: readonly Output[]): string[] =>
  told.filter(({ name, sensitive }) => !sensitive && (name === kubeconfig || name === token)).map(({ name }) => name)

/** The kubeconfig from a module's outputs. Throws a `DeploymentError`. Pure. */
export const kubeconfigOf = ({ outputs }: ClusterModule, told: readonly Output[] | null): string => {
  const values = new Map((told ?? []).map(({ name, value }) => [name, value]))
  const demand = (name: string): string => {
    const value = values.get(name) ?? ''
    if (value === '') throw refuse(`The module has no value for its output ${name}.`)
    return value
  }
  const text =
    outputs.kubeconfig === undefined
      ? configOf(demand(outputs.host!), demand(outputs.token!), outputs.ca && values.get(outputs.ca))
      : demand(outputs.kubeconfig)
  if (text.length > longestKubeconfig) throw refuse('The kubeconfig of the module is too long.')
  return text
}

const everyMs = 3000
const oneLookMs = 10_000

/** The identity of a kubeconfig's cluster; asked until it answers successfully, or the time is over. */
export const identify = async (
  { clusters, clock }: Pick<Parts, 'clusters' | 'clock'>,
  kubeconfig: Secret,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<MachineFacts> => {
  const access = await parseKubeconfig(kubeconfig.reveal()).catch((error: unknown) => {
    throw error instanceof KubeconfigRefused
      ? refuse(`The kubeconfig of the module is refused: ${error.message}.`)
      : error
  })
  if (clusters.openKubernetes === null) throw refuse('This server connects only to its own Docker engine.')
  const kubernetes = await clusters.openKubernetes(access)
  const untilMs = clock.monotonicMs() + deadlineMs
  try {
    for (;;) {
      try {
        const facts = await kubernetes.look(signal, oneLookMs)
        const refusal = refuseVersion(facts.version)
        if (refusal !== null) throw refuse(refusal)
        refuseMissing(facts)
        return { id: idOfKubernetes(facts.uid!), version: facts.version }
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof KubernetesError)) throw error
        // A new cluster answers, and knows its accounts, a while after its provider reports it as ready.
        if (clock.monotonicMs() >= untilMs)
          throw new DeploymentError('cluster_unreachable', `The cluster was made, but cannot be used: ${error.message}`)
      }
      await clock.sleep(everyMs, signal)
    }
  } finally {
    await kubernetes.close()
  }
}

/** The reason why a cluster cannot be claimed, as the end of a run. */
export const asDeploymentError = (error: unknown): unknown =>
  error instanceof ApiError ? new DeploymentError(error.code, error.message, { cause: error }) : error
