/**
 * An app of the cluster's Argo CD as the objects that we own there: the Application, a project that keeps it in the
 * namespace of its environment, and its repository with its own login. Pure.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { AppToRun } from '../../apps.ts'
import type { Workload } from '../../runtime.ts'
import { idLabels, labels, type Manifest, namespaceOf, type Place } from '../manifests/describe.ts'

export type AppWorkload = Workload & { app: AppToRun }

/** The cluster that the Argo CD runs in, as it calls it. */
export const thisCluster = 'https://kubernetes.default.svc'
export const secretTypeLabel = 'argocd.argoproj.io/secret-type'
/** On a login of the Argo CD: whoever runs it lets every app read by it. */
export const sharedLabel = 'slipway.shared'
/** On the namespace of the Argo CD, as `any`: whoever runs it lets every app lead any host to itself. */
export const hostsLabel = 'slipway.hosts'
export const roles = { running: 'app', stopped: 'app-stopped' } as const

const version = 'argoproj.io/v1alpha1'
const finalizer = 'resources-finalizer.argocd.argoproj.io'

export const appNameOf = (serviceId: string): string => `slipway-${serviceId}`

/**
 * What an app may be made of. Secrets are not among them: helm believes the secrets of a namespace, and acts with our
 * login. Nor is what gives rights, what opens the network, and kinds of others that act with their makers' rights.
 */
const plainKinds = [
  { group: '', kind: 'ConfigMap' },
  { group: '', kind: 'PersistentVolumeClaim' },
  { group: '', kind: 'Service' },
  { group: 'apps', kind: 'Deployment' },
  { group: 'apps', kind: 'StatefulSet' },
  { group: 'autoscaling', kind: 'HorizontalPodAutoscaler' },
  { group: 'batch', kind: 'Job' },
  { group: 'policy', kind: 'PodDisruptionBudget' },
] as const

/**
 * What gives a host to whoever names it, this server's own too. Of a chart we read the hosts before it is installed; an app
 * is rendered where we do not see it.
 */
const leadingKinds = [
  { group: 'gateway.networking.k8s.io', kind: 'GRPCRoute' },
  { group: 'gateway.networking.k8s.io', kind: 'HTTPRoute' },
  { group: 'networking.k8s.io', kind: 'Ingress' },
] as const

export const kindsOfApps = [...plainKinds, ...leadingKinds]

/** What a project allows is a pattern. */
const refusePattern = (url: string): void => {
  if (/^https?:\/\/[\w.~:/%+@-]+$/.test(url)) return
  const message =
    'Argo CD takes the URL of the repository for a pattern: use one without any of the characters *?![]{}.'
  throw new DeploymentError('repository_refused', message)
}

const encode = (values: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Buffer.from(value).toString('base64')]))

export interface AppPlan {
  argoNamespace: string
  /** It may lead any host to itself. */
  leads: boolean
  /** A synchronization is asked for; else only what is said of the app is kept true. */
  begins: boolean
}

/** In the order in which they are applied. */
export const describeApp = (
  workload: AppWorkload,
  place: Place,
  { argoNamespace, leads, begins }: AppPlan,
): Manifest[] => {
  const { repository, path, content } = workload.app
  const { commit, login } = content.reveal()
  refusePattern(repository)
  const name = appNameOf(workload.serviceId)
  const namespace = namespaceOf(workload.environmentId)
  const metadata = { name, namespace: argoNamespace, labels: idLabels(place, workload) }
  const syncOptions = ['CreateNamespace=false', 'FailOnSharedResource=true']
  const retry = { limit: 2, backoff: { duration: '5s', factor: 2, maxDuration: '1m' } }
  return [
    {
      apiVersion: version,
      kind: 'AppProject',
      metadata,
      spec: {
        description: 'Made by Slipway for one service.',
        sourceRepos: [repository],
        destinations: [{ server: thisCluster, namespace }],
        clusterResourceWhitelist: [],
        namespaceResourceWhitelist: leads ? kindsOfApps : plainKinds,
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { ...metadata, labels: { ...metadata.labels, [secretTypeLabel]: 'repository' } },
      type: 'Opaque',
      data: encode({
        ...{ type: 'git', url: repository, project: name },
        ...(login === null ? {} : { username: login.username, password: login.password }),
      }),
    },
    {
      apiVersion: version,
      kind: 'Application',
      metadata: {
        ...metadata,
        labels: { ...metadata.labels, [labels.role]: roles.running, [labels.revision]: workload.revision },
        finalizers: [finalizer],
      },
      spec: {
        project: name,
        source: { repoURL: repository, path: path === '' ? '.' : path, targetRevision: commit },
        destination: { server: thisCluster, namespace },
        syncPolicy: { automated: { prune: true, selfHeal: true }, syncOptions, retry },
      },
      ...(begins
        ? {
            operation: {
              initiatedBy: { username: 'slipway' },
              info: [{ name: labels.revision, value: workload.revision }],
              sync: { revision: commit, prune: true, syncOptions },
              retry,
            },
          }
        : {}),
    },
  ]
}

const plainUrl = (url: string): string =>
  url
    .trim()
    .toLowerCase()
    .replace(/\/+$/, '')
    .replace(/\.git$/, '')

/** A login that the Argo CD keeps: for one repository, or for all whose URLs begin so. */
export interface KeptLogin {
  labels: Record<string, string>
  type: 'repository' | 'repo-creds'
  url: string
}

/** Whether an app's repository would be read by it. */
const isFor = (repository: string, { type, url }: KeptLogin): boolean => {
  const [wanted, kept] = [plainUrl(repository), plainUrl(url)]
  return type === 'repository' ? kept === wanted : kept !== '' && wanted.startsWith(kept)
}

/** Why an app may not be given to the Argo CD, which would read its repository, or its submodules, by others' logins. */
export const loginRefusal = (
  repository: string,
  kept: readonly KeptLogin[],
  { ownerId }: Pick<Place, 'ownerId'>,
): string | null => {
  const isOthers = ({ labels: own }: KeptLogin): boolean => own[labels.owner] !== ownerId && own[sharedLabel] !== 'true'
  if (!kept.some((each) => isOthers(each) && isFor(repository, each))) return null
  return `The Argo CD of this cluster has a login of its own for this repository, which is not for services: whoever runs it removes that, or gives its secret the label ${sharedLabel}=true.`
}
