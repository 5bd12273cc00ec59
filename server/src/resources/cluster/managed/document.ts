/** The document of a cluster that a module can read: its configuration without secrets, and values derived from it. */
import type { Spec } from '../../../api/operations/resource.ts'
import { defaultsOf } from '../../../facets/settings/settings.ts'
import { rights } from '../../../runtimes/kubernetes/rights.ts'
import type { Queryable } from '../../../store/database.ts'
import { clusterSettings } from '../settings.ts'

/** Fields that a provider's cluster does not have: stored with it, or about access to it. */
const own = ['lock', 'routes', 'dns_provider', 'cloud_provider_credentials', 'secret_manager_accesses', 'is_default']

/** SQL: the fingerprint of the fields of a cluster's row that a module can read. */
export const markSql = (row: string): string =>
  `md5(((${row}.spec - array[${[...own, 'description'].map((name) => `'${name}'`).join(', ')}]) ||
    jsonb_build_object('name', ${row}.name))::text)`

const labelsSql = `select l ->> 'key' as key, l ->> 'value' as value from node g, jsonb_array_elements(g.spec -> 'labels') l
  where g.id = any($1) and g.organization_id = $2 and g.kind = 'labels_group'
    and (l ->> 'propagate_to_cloud_provider')::boolean order by g.created_at, g.id`

const readLabels = async (db: Queryable, organizationId: string, spec: Spec): Promise<Record<string, string>> => {
  const ids = ((spec.labels_groups ?? []) as { id: string }[]).map(({ id }) => id)
  if (ids.length === 0) return {}
  const rows = await db.query<{ key: string; value: string }>(labelsSql, [ids, organizationId])
  return Object.fromEntries(rows.map(({ key, value }) => [key, value]))
}

/** The rights of the account that the module creates for this server. */
const accessRules = rights.map(({ group, resources, verbs }) => ({ api_groups: [group], resources, verbs }))

const defaults = defaultsOf(clusterSettings)

export const readDocument = async (
  db: Queryable,
  { id, organizationId, name, spec }: { id: string; organizationId: string; name: string; spec: Spec },
  more: { kubernetes_version: string | null; stopped: boolean },
): Promise<object> => {
  const fields = Object.fromEntries(Object.entries(spec).filter(([field]) => !own.includes(field)))
  return {
    ...fields,
    id,
    name,
    advanced_settings: { ...defaults, ...(spec.advanced_settings as object | undefined) },
    labels: await readLabels(db, organizationId, spec),
    access_rules: accessRules,
    ...more,
  }
}
