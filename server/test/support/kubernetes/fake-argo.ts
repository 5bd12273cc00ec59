/**
 * Plays the application controller of an Argo CD: it writes what one would write of the Applications that it is shown,
 * and makes and removes what a test says is in their repositories. It keeps to their projects.
 */
import type { Json } from '../api.ts'
import type { Store } from './store.ts'

export interface ArgoHands {
  apply(manifest: Json): Promise<unknown>
  remove(manifest: Json): Promise<unknown>
  /** JSON merge patch of an Application; without finalizers one that is deleted goes. */
  patch(app: Json, patch: Json): Promise<unknown>
  project(app: Json): Promise<Json | undefined>
}

export interface FakeArgo {
  /** What the repository has at a commit, without namespaces. */
  manifests(commit: string): Json[]
  /** How a synchronization ends; `Running`: it does not. */
  outcome(commit: string): { phase: string; message: string }
  health: Json
  sync: string
  /** Looks at an Application, as it does after each change. */
  see(app: Json): Promise<void>
}

const now = () => new Date().toISOString()
const groupOf = ({ apiVersion }: Json): string => (apiVersion.includes('/') ? apiVersion.split('/')[0] : '')
const appliedName = 'kubectl.kubernetes.io/last-applied-configuration'

const refusalBy = (project: Json | undefined, { spec }: Json, manifests: readonly Json[]): string | null => {
  if (project === undefined) return `application references project ${spec.project} which does not exist`
  const { sourceRepos, destinations, namespaceResourceWhitelist: kinds } = project.spec
  if (!sourceRepos.includes(spec.source.repoURL)) return `repository ${spec.source.repoURL} is not permitted`
  const isThere = ({ server, namespace }: Json): boolean =>
    server === spec.destination.server && namespace === spec.destination.namespace
  if (!destinations.some(isThere)) return 'destination is not permitted'
  const isKind = (each: Json) => kinds.some(({ group, kind }: Json) => group === groupOf(each) && kind === each.kind)
  const wrong = manifests.find((each) => !isKind(each))
  return wrong === undefined
    ? null
    : `resource ${groupOf(wrong)}:${wrong.kind} is not permitted in project ${spec.project}`
}

export const createFakeArgo = (hands: ArgoHands): FakeArgo => {
  const made = new Map<string, Json[]>()

  const synchronize = async (app: Json): Promise<void> => {
    const { operation, spec, metadata } = app
    const { revision } = operation.sync
    const { namespace } = spec.destination
    const manifests = argo.manifests(revision).map((each) => ({
      ...each,
      metadata: { ...each.metadata, namespace, annotations: { [appliedName]: JSON.stringify(each) } },
    }))
    const refused = refusalBy(await hands.project(app), app, manifests)
    const end = refused === null ? argo.outcome(revision) : { phase: 'Failed', message: refused }
    const operationState = { operation, ...end, startedAt: now(), syncResult: { revision } }
    if (end.phase === 'Running') return void (await hands.patch(app, { status: { operationState } }))
    const isDone = end.phase === 'Succeeded'
    if (isDone) {
      for (const each of manifests) await hands.apply(each)
      made.set(metadata.name, manifests)
    }
    const resources = manifests.map((each) => ({
      ...{ group: groupOf(each), kind: each.kind, name: each.metadata.name, namespace, status: 'Synced' },
    }))
    await hands.patch(app, {
      operation: null,
      status: {
        operationState: { ...operationState, finishedAt: now() },
        sync: { status: isDone ? argo.sync : 'OutOfSync', revision },
        ...(isDone ? { history: [{ id: 0, revision }], resources } : {}),
        health: isDone ? argo.health : { status: 'Missing' },
        reconciledAt: now(),
      },
    })
  }

  const remove = async (app: Json): Promise<void> => {
    if (app.metadata.finalizers?.includes('resources-finalizer.argocd.argoproj.io'))
      for (const each of made.get(app.metadata.name) ?? []) await hands.remove(each)
    await hands.patch(app, { metadata: { finalizers: null } })
  }

  const argo: FakeArgo = {
    manifests: () => [],
    outcome: () => ({ phase: 'Succeeded', message: 'successfully synced (all tasks run)' }),
    health: { status: 'Healthy' },
    sync: 'Synced',
    async see(app) {
      if (app.metadata.deletionTimestamp !== undefined) return remove(app)
      const { operationState } = app.status ?? {}
      if (app.operation === undefined) return
      if (operationState?.phase === 'Running') return
      if (operationState?.phase === 'Terminating') {
        const patch = { operation: null, status: { operationState: { phase: 'Failed', message: 'terminated' } } }
        return void (await hands.patch(app, patch))
      }
      await synchronize(app)
    },
  }
  return argo
}

/** One in a cluster in memory: it has a namespace there, and sees every change. */
export const startFakeArgo = (store: Store, namespace = 'argocd'): FakeArgo => {
  store.put({ kind: 'Namespace', metadata: { name: namespace } })
  const argo = createFakeArgo({
    apply: async (manifest) => store.apply(manifest as never),
    remove: async ({ kind, metadata }) => {
      const found = store.find(kind, metadata.namespace, metadata.name)
      if (found !== undefined) store.drop(found)
    },
    patch: async (app, patch) => {
      const found = store.find('Application', namespace, app.metadata.name)
      if (found === undefined) return
      if (patch.metadata?.finalizers === null) store.drop(found)
      else store.merge(found, patch)
    },
    project: async (app) => store.find('AppProject', namespace, app.spec.project),
  })
  // One after the other, each as it is by then.
  let last = Promise.resolve()
  store.listen(store.version, ({ object, type }) => {
    if (object.kind !== 'Application' || type === 'DELETED') return
    last = last.then(async () => {
      const found = store.find('Application', namespace, object.metadata.name)
      if (found !== undefined) await argo.see(structuredClone(found))
    })
  })
  return argo
}
