/**
 * The definitions of Argo CD's resources, as far as this server writes them: a field that is not here, or of another
 * type, is refused or dropped by the cluster. What only the controller writes is taken as it is.
 */
import type { Json } from '../../support/api.ts'

const text: Json = { type: 'string' }
const flag: Json = { type: 'boolean' }
const listOf = (items: Json): Json => ({ type: 'array', items })
const open: Json = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true }
const fields = (properties: Record<string, Json>, required: string[] = []): Json => ({
  ...{ type: 'object', properties },
  ...(required.length === 0 ? {} : { required }),
})

const destination = fields({ name: text, namespace: text, server: text })
const backoff = fields({ duration: text, factor: { type: 'integer', format: 'int64' }, maxDuration: text })
const retry = fields({ backoff, limit: { type: 'integer', format: 'int64' } })
const kinds = listOf(fields({ group: text, kind: text }, ['group', 'kind']))

const applicationSpec = fields(
  {
    destination,
    project: text,
    source: fields({ path: text, repoURL: text, targetRevision: text }, ['repoURL']),
    syncPolicy: fields({
      automated: fields({ allowEmpty: flag, prune: flag, selfHeal: flag }),
      ...{ retry, syncOptions: listOf(text) },
    }),
  },
  ['destination', 'project'],
)
const operation = fields({
  info: listOf(fields({ name: text, value: text }, ['name', 'value'])),
  initiatedBy: fields({ automated: flag, username: text }),
  retry,
  sync: fields({ prune: flag, revision: text, syncOptions: listOf(text) }),
})
const projectSpec = fields({
  ...{ clusterResourceWhitelist: kinds, namespaceResourceWhitelist: kinds },
  ...{ description: text, destinations: listOf(destination), sourceRepos: listOf(text) },
})

const definition = (kind: string, schema: Record<string, Json>, required: string[]): Json => {
  const plural = `${kind.toLowerCase()}s`
  const inObject = { apiVersion: text, kind: text, metadata: { type: 'object' }, status: open }
  return {
    ...{ apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' },
    metadata: { name: `${plural}.argoproj.io` },
    spec: {
      ...{ group: 'argoproj.io', scope: 'Namespaced' },
      names: { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase() },
      versions: [
        {
          ...{ name: 'v1alpha1', served: true, storage: true },
          schema: { openAPIV3Schema: fields({ ...inObject, ...schema }, ['metadata', ...required]) },
        },
      ],
    },
  }
}

export const argoDefinitions: readonly Json[] = [
  definition('Application', { operation, spec: applicationSpec }, ['spec']),
  definition('AppProject', { spec: projectSpec }, ['spec']),
]
