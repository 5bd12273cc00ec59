/**
 * The labels that a service's owners want on its containers: from its groups of annotations and of labels, in this
 * order; of equal keys the last counts. In SQL, as part of reading a configuration; a service without groups is read
 * unchanged.
 */

const field = 'owners_labels'

const pairsSql = (node: string, kind: 'annotations' | 'labels', order: number): string =>
  `select ${order} as kind, w.at, p.n, p.pair ->> 'key' as key, p.pair ->> 'value' as value
   from jsonb_array_elements(coalesce(${node}.spec -> '${kind}_groups', '[]')) with ordinality w (item, at)
     join node g on g.id = (w.item ->> 'id')::uuid and g.organization_id = ${node}.organization_id,
     jsonb_array_elements(g.spec -> '${kind}') with ordinality p (pair, n)`

/** A configuration together with the field that `ownersLabelsIn` reads. */
export const specSql = (node: string): string =>
  `case when coalesce(${node}.spec -> 'labels_groups', '[]') = '[]' and coalesce(${node}.spec -> 'annotations_groups', '[]') = '[]'
    then ${node}.spec else ${node}.spec || jsonb_build_object('${field}', (
      select coalesce(jsonb_object_agg(l.key, l.value order by l.kind, l.at, l.n), '{}') from (
        ${pairsSql(node, 'annotations', 0)} union all ${pairsSql(node, 'labels', 1)}) l)) end`

export const ownersLabelsIn = (spec: Record<string, unknown>): { labels?: Record<string, string> } => {
  const labels = (spec[field] ?? {}) as Record<string, string>
  return Object.keys(labels).length === 0 ? {} : { labels }
}
