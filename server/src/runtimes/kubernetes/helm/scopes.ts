/** What a cluster knows: the versions of its API, and where its kinds of objects are. */
import type { KubernetesApi } from '../../../lib/kubernetes/kubernetes-api.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { ChartedObject, ScopeOf } from './charted.ts'

export interface KnownVersions {
  kubeVersion: string
  apiVersions: string[]
}

type Asking = Pick<KubernetesApi, 'get'>

const mostVersions = 500
const isVersion = (text: unknown): text is string =>
  typeof text === 'string' && /^[a-z0-9.-]{1,253}(\/[a-z0-9]{1,63})?$/.test(text)

interface Groups {
  groups?: { versions?: { groupVersion?: unknown }[] }[]
}

export const readVersions = async ({ get }: Asking, signal?: AbortSignal): Promise<KnownVersions> => {
  const [{ gitVersion }, { groups = [] }] = await Promise.all([
    get<{ gitVersion?: unknown }>('/version', { signal }),
    get<Groups>('/apis', { signal }),
  ])
  const all = groups.flatMap(({ versions = [] }) => versions.map(({ groupVersion }) => groupVersion))
  const [kubeVersion = 'v1.28.0'] = /^v1\.\d+\.\d+/.exec(String(gitVersion)) ?? []
  return { kubeVersion, apiVersions: all.filter(isVersion).slice(0, mostVersions) }
}

interface Resources {
  resources?: { kind?: unknown; name?: unknown; namespaced?: unknown }[]
}

const readKinds = async ({ get }: Asking, apiVersion: string, signal?: AbortSignal): Promise<[string, boolean][]> => {
  if (!isVersion(apiVersion)) return []
  try {
    const { resources = [] } = await get<Resources>(`/${apiVersion.includes('/') ? 'apis' : 'api'}/${apiVersion}`, {
      signal,
    })
    return resources
      .filter(({ name }) => !String(name).includes('/'))
      .map(({ kind, namespaced }) => [String(kind), namespaced === true])
  } catch (error) {
    if (error instanceof KubernetesError && error.status === 404) return []
    throw error
  }
}

/** Of the kinds that are among the objects, and of those that the definitions among them are going to add. */
export const readScopes = async (
  api: Asking,
  objects: readonly ChartedObject[],
  signal?: AbortSignal,
): Promise<ScopeOf> => {
  const known = new Map<string, boolean>()
  for (const apiVersion of new Set(objects.map((each) => each.apiVersion)))
    for (const [kind, isNamespaced] of await readKinds(api, apiVersion, signal))
      known.set(`${apiVersion} ${kind}`, isNamespaced)
  for (const { kind, spec } of objects) {
    const { group, names, scope, versions } = (spec ?? {}) as Record<
      string,
      { kind?: unknown; name?: unknown }[] & { kind?: unknown }
    >
    if (kind !== 'CustomResourceDefinition' || !Array.isArray(versions)) continue
    for (const { name } of versions) {
      const key = `${String(group)}/${String(name)} ${String(names?.kind)}`
      if (!known.has(key)) known.set(key, String(scope) === 'Namespaced')
    }
  }
  return (apiVersion, kind) => {
    const isNamespaced = known.get(`${apiVersion} ${kind}`)
    if (isNamespaced === undefined) return null
    return isNamespaced ? 'namespaced' : 'cluster'
  }
}
