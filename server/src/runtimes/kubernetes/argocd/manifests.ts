/**
 * The objects that we own for an app of the cluster's Argo CD: the Application, a project that keeps it in the
 * namespace of its environment, and its repository with its own login. Pure.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { ServiceApp } from '../../runtime.ts'
import { idLabels, labels, type Manifest, namespaceOf, type Place } from '../manifests/describe.ts'

/** Argo CD's name of the cluster that it runs in. */
export const thisCluster = 'https://kubernetes.default.svc'
export const secretTypeLabel = 'argocd.argoproj.io/secret-type'
/** A label on a login of the Argo CD: its administrator lets every app use it. */
export const sharedLabel = 'slipway.shared'
/** A label on the namespace of the Argo CD, with the value `any`: its administrator lets every app publish any host. */
export const hostsLabel = 'slipway.hosts'
export const roles = { running: 'app', stopped: 'app-stopped' } as const

const version = 'argoproj.io/v1alpha1'
const finalizer = 'resources-finalizer.argocd.argoproj.io'

export const appNameOf = (serviceId: string): string => `slipway-${serviceId}`

/**
 * The kinds of objects that an app may contain. Secrets are not among them: helm trusts the secrets of a namespace,
 * and acts with our login. Nor are kinds that grant rights, open the network, or act with their creators' rights.
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
 * Kinds that assign a host to any object that names it, even this server's own. We read the hosts of a chart before it
 * is installed; an app is rendered where we do not see it.
 */
const leadingKinds = [
  { group: 'gateway.networking.k8s.io', kind: 'GRPCRoute' },
  { group: 'gateway.networking.k8s.io', kind: 'HTTPRoute' },
  { group: 'networking.k8s.io', kind: 'Ingress' },
] as const

export const kindsOfApps = [...plainKinds, ...leadingKinds]

/** A project's allowed values are patterns. */
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
  /** It may publish any host. */
  leads: boolean
  /** A synchronization is requested; else only the app's settings are kept up to date. */
  begins: boolean
}

/** In the order in which they are applied. */
export const describeApp = (
  workload: ServiceApp,
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

/** A login stored in the Argo CD: for one repository, or for all whose URLs begin with its own. */
export interface KeptLogin {
  labels: Record<string, string>
  type: 'repository' | 'repo-creds'
  url: string
}

/** Whether an app's repository would be read with it. */
const isFor = (repository: string, { type, url }: KeptLogin): boolean => {
  const [wanted, kept] = [plainUrl(repository), plainUrl(url)]
  return type === 'repository' ? kept === wanted : kept !== '' && wanted.startsWith(kept)
}

/** Why an app may not be created: the Argo CD would read its repository or submodules with logins of others. */
export const loginRefusal = (
  repository: string,
  kept: readonly KeptLogin[],
  { ownerId }: Pick<Place, 'ownerId'>,
): string | null => {
  const isOthers = ({ labels: own }: KeptLogin): boolean => own[labels.owner] !== ownerId && own[sharedLabel] !== 'true'
  if (!kept.some((each) => isOthers(each) && isFor(repository, each))) return null
  return `Argo CD already has credentials for this repository that services may not use. Ask its administrator to remove them or to label their secret ${sharedLabel}=true.`
}
