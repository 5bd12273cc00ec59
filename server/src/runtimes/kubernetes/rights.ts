/**
 * The rights of this server on a cluster: the one table from which the manifest that grants them is made, and by which
 * a login is checked. Services get a namespace for each environment, so the rights apply in every namespace.
 */

interface Right {
  /** Empty for the core of the API. */
  group: string
  resources: readonly string[]
  verbs: readonly string[]
}

/** One verb on one resource. */
export interface Act {
  group: string
  resource: string
  verb: string
}

const look = ['get', 'list', 'watch']
const manage = [...look, 'create', 'patch', 'delete']

export const rights: readonly Right[] = [
  { group: '', resources: ['namespaces'], verbs: manage },
  { group: '', resources: ['services', 'configmaps', 'persistentvolumeclaims'], verbs: manage },
  // Helm stores its revisions in secrets, and replaces them; without the right it continues as if it had.
  { group: '', resources: ['secrets'], verbs: [...manage, 'update'] },
  { group: '', resources: ['pods'], verbs: [...look, 'delete'] },
  { group: '', resources: ['pods/log'], verbs: ['get'] },
  { group: '', resources: ['pods/exec'], verbs: ['get', 'create'] },
  { group: '', resources: ['events', 'nodes'], verbs: look },
  { group: 'apps', resources: ['deployments', 'statefulsets'], verbs: manage },
  { group: 'apps', resources: ['replicasets'], verbs: look },
  { group: 'batch', resources: ['jobs'], verbs: manage },
  { group: 'autoscaling', resources: ['horizontalpodautoscalers'], verbs: manage },
  { group: 'policy', resources: ['poddisruptionbudgets'], verbs: manage },
  { group: 'networking.k8s.io', resources: ['networkpolicies', 'ingresses'], verbs: manage },
  { group: 'gateway.networking.k8s.io', resources: ['httproutes', 'grpcroutes'], verbs: manage },
  { group: 'argoproj.io', resources: ['applications', 'appprojects'], verbs: manage },
  { group: 'metrics.k8s.io', resources: ['pods', 'nodes'], verbs: ['get', 'list'] },
]

/** As reported by the API server (`SelfSubjectRulesReview`): untrusted text. */
export interface Rule {
  verbs?: unknown
  apiGroups?: unknown
  resources?: unknown
  resourceNames?: unknown
}

/** Each word is read once, however many there are. */
const readRule = ({ verbs, apiGroups, resources, resourceNames }: Rule) => ({
  verbs: wordsIn(verbs),
  groups: wordsIn(apiGroups),
  resources: wordsIn(resources),
  isForAll: !Array.isArray(resourceNames) || resourceNames.length === 0,
})

const wordsIn = (list: unknown): ReadonlySet<unknown> => new Set(Array.isArray(list) ? list : [])

const has = (words: ReadonlySet<unknown>, ...any: string[]): boolean => any.some((each) => words.has(each))

const grants = (rule: ReturnType<typeof readRule>, { group, resource, verb }: Act): boolean =>
  rule.isForAll &&
  has(rule.verbs, verb, '*') &&
  has(rule.groups, group, '*') &&
  has(rule.resources, resource, '*', resource.replace(/^.*\//, '*/'))

const acts: readonly Act[] = rights.flatMap(({ group, resources, verbs }) =>
  resources.flatMap((resource) => verbs.map((verb) => ({ group, resource, verb }))),
)

/** For one login; with more rules, each right is asked for separately. */
export const mostRules = 1000

/** The rights that the first of the rules do not grant. */
export const missingIn = (rules: readonly Rule[]): Act[] => {
  const read = rules.slice(0, mostRules).map(readRule)
  return acts.filter((act) => !read.some((rule) => grants(rule, act)))
}

const nameOf = ({ group, resource }: Act): string => (group === '' ? resource : `${resource}.${group}`)

/** `get, list nodes; create jobs.batch`; the resources that do not fit into `longest` characters are counted. */
export const describeActs = (missing: readonly Act[], longest = 300): string => {
  const lines = [...Map.groupBy(missing, nameOf)].map(
    ([name, all]) => `${all.map(({ verb }) => verb).join(', ')} ${name}`,
  )
  let shown = lines
  while (shown.length > 1 && shown.join('; ').length > longest) shown = shown.slice(0, -1)
  const left = lines.length - shown.length
  return shown.join('; ') + (left === 0 ? '' : `; and rights on ${left} more`)
}

const name = 'slipway'
const meta = { name }
const account = { kind: 'ServiceAccount', name, namespace: name }
const authorization = 'rbac.authorization.k8s.io'

/** An account of our own in the cluster, what it may do, and a token for it; for `kubectl apply`. */
export const accessManifest = {
  apiVersion: 'v1',
  kind: 'List',
  items: [
    { apiVersion: 'v1', kind: 'Namespace', metadata: meta },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace: name } },
    {
      apiVersion: `${authorization}/v1`,
      kind: 'ClusterRole',
      metadata: meta,
      rules: rights.map(({ group, resources, verbs }) => ({ apiGroups: [group], resources, verbs })),
    },
    {
      apiVersion: `${authorization}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: meta,
      roleRef: { apiGroup: authorization, kind: 'ClusterRole', name },
      subjects: [account],
    },
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: `${name}-token`, namespace: name, annotations: { 'kubernetes.io/service-account.name': name } },
      type: 'kubernetes.io/service-account-token',
    },
  ],
}
