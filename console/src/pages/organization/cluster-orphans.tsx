/** Services that run on a cluster but are unknown to the database, and the decisions about them. */

import { Button } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, type Schemas } from '../../api/client.ts'
import { refresh } from '../../api/queries.ts'
import { FormDialog } from '../../ui/dialog.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'

type Orphan = Schemas['ClusterOrphan']
type Action = 'adopt' | 'ignore' | 'remove'

const changed = ['cluster orphans', 'cluster statuses', 'projects']
const pathOf = (clusterId: string) => inPath({ clusterId })

const kinds: Record<Orphan['kind'], string> = {
  SERVICE: 'Service',
  ENVIRONMENT: 'Environment',
  VERSION: 'Newer version of a service',
}

const plural = (count: number, word: string): string => `${count} ${word}${count === 1 ? '' : 's'}`

const contentOf = ({ instances, volumes }: Orphan): string =>
  [
    ...(instances.length === 0 ? [] : [plural(instances.length, 'instance')]),
    ...(volumes.length === 0 ? [] : [plural(volumes.length, 'volume')]),
  ].join(', ') || 'its network'

/** Why some could not be adopted, or the result. */
const saidOf = (action: Action, left: readonly { reason: string }[]): string => {
  if (action === 'ignore') return 'They are left as they are.'
  if (action === 'remove') return 'They are being deleted.'
  return left.length === 0 ? 'They are services again.' : `Not adopted: ${left.map(({ reason }) => reason).join(' ')}`
}

const decide = async (clusterId: string, action: Action, ids: string[] | null): Promise<string> => {
  const path = pathOf(clusterId)
  if (ids === null) {
    const body = { action, ...(action === 'remove' ? { confirm: true } : {}) }
    return saidOf(action, (await answerOf(client.POST('/cluster/{clusterId}/conflict', { ...path, body }))).left)
  }
  if (action === 'adopt')
    return saidOf(
      action,
      (await answerOf(client.POST('/cluster/{clusterId}/orphans/adopt', { ...path, body: { ids } }))).left,
    )
  if (action === 'ignore')
    await answerOf(client.POST('/cluster/{clusterId}/orphans/ignore', { ...path, body: { ids } }))
  else await answerOf(client.POST('/cluster/{clusterId}/orphans/remove', { ...path, body: { ids } }))
  return saidOf(action, [])
}

/** `ids` null: all of a cluster with a conflict, which this ends. */
const Decisions = ({ clusterId, ids, what }: { clusterId: string; ids: string[] | null; what: string }) => {
  const [isRemoving, remove] = useState(false)
  const acting = useMutation({
    mutationFn: (action: Action) => decide(clusterId, action, ids),
    async onSuccess(said) {
      tell(said)
      await refresh(...changed)
    },
    onError: tellProblem,
  })
  return (
    <span className="row">
      <Button size="compact-sm" loading={acting.isPending} onClick={() => acting.mutate('adopt')}>
        Adopt
      </Button>
      <SmallButton disabled={acting.isPending} onClick={() => acting.mutate('ignore')}>
        Leave as it is
      </SmallButton>
      <SmallButton color="red" onClick={() => remove(true)}>
        Delete
      </SmallButton>
      {isRemoving ? (
        <FormDialog
          title={`Delete ${what}`}
          button="Delete"
          isReady
          isLoss
          onClose={() => remove(false)}
          changed={changed}
          act={async () => {
            tell(await decide(clusterId, 'remove', ids))
            remove(false)
          }}
        >
          <p>What runs is ended, and its volumes are deleted with all that is in them. This cannot be undone.</p>
        </FormDialog>
      ) : null}
    </span>
  )
}

const OrphanRow = ({ clusterId, orphan, canDecide }: { clusterId: string; orphan: Orphan; canDecide: boolean }) => (
  <tr>
    <td className="wrap">
      <span className="strong">{kinds[orphan.kind]}</span>
      <p className="dim small wrap">{orphan.id}</p>
    </td>
    <td className="wrap">{contentOf(orphan)}</td>
    <td className="tight optional">
      <Time at={orphan.created_at ?? orphan.first_seen_at} />
    </td>
    <td className="tight">
      {orphan.ignored_at === null ? null : <span className="chip">left as it is</span>}
      {canDecide ? <Decisions clusterId={clusterId} ids={[orphan.id]} what={kinds[orphan.kind].toLowerCase()} /> : null}
    </td>
  </tr>
)

export const ClusterOrphans = ({ clusterId }: { clusterId: string }) => {
  const may = useMay()
  const { data } = useQuery({
    queryKey: ['cluster orphans', clusterId],
    queryFn: () => answerOf(client.GET('/cluster/{clusterId}/orphans', pathOf(clusterId))),
    refetchInterval: 30_000,
  })
  if (data === undefined || (data.conflict === null && data.results.length === 0)) return null
  const { conflict, results } = data
  const canDecide = may('administer')
  return (
    <div className="stack">
      {conflict === null ? null : (
        <div className="note bad stack" role="status">
          <span className="wrap">
            <strong>Nothing is changed on this cluster until an operator decides:</strong> {conflict.message}.
          </span>
          {canDecide ? <Decisions clusterId={clusterId} ids={null} what="everything that is listed here" /> : null}
        </div>
      )}
      {results.length === 0 ? null : (
        <>
          <p className="dim wrap">
            The database does not know these. They run on; nothing of them is deleted unless somebody asks for it.
          </p>
          <ListTable
            label="Orphans"
            isCard
            heads={{ Orphan: '', Has: '', Since: 'tight optional', Decide: 'tight hidden' }}
          >
            {results.map((orphan) => (
              <OrphanRow
                key={orphan.id}
                clusterId={clusterId}
                orphan={orphan}
                canDecide={canDecide && conflict === null}
              />
            ))}
          </ListTable>
        </>
      )}
    </div>
  )
}
