/** The differences between two deployments: the version of each service, and its result. */
import type { Execution } from '../../api/queries.ts'
import { DialogFrame } from '../../ui/dialog.tsx'
import { Line } from '../../ui/plan.tsx'
import { wordOf } from '../../ui/state.tsx'
import { durationOf, Time } from '../../ui/time.tsx'
import { titleOf } from './execution.ts'

type Part = Execution['stages'][number]['services'][number]

const partsOf = ({ stages }: Execution): Map<string, Part> =>
  new Map(stages.flatMap(({ services }) => services).map((each) => [each.identifier.service_id, each]))

const imageOf = ({ details: { image_name: image, tag } }: Part): string | undefined =>
  image === undefined ? undefined : `${image}${tag === undefined ? '' : `:${tag}`}`

const factsOf = (part: Part): Record<string, string | undefined> => ({
  commit: part.details.commit?.git_commit_id.slice(0, 10),
  message: part.details.commit?.message.split('\n')[0],
  author: part.details.commit?.author_name,
  image: imageOf(part),
  arguments: part.details.arguments?.join(' ') || undefined,
  entrypoint: part.details.entrypoint || undefined,
  schedule: part.details.schedule === undefined ? undefined : JSON.stringify(part.details.schedule),
  result: wordOf(part.status),
  took: durationOf(part.total_duration),
})

const Changed = ({ older, newer }: { older: Part | undefined; newer: Part | undefined }) => {
  const { name } = (newer ?? older)!.identifier
  const [before, after] = [older, newer].map((part) => (part === undefined ? {} : factsOf(part)))
  const only = older === undefined ? 'Only in the newer' : newer === undefined ? 'Only in the older' : null
  const fields =
    only === null ? Object.keys({ ...before, ...after }).filter((field) => before?.[field] !== after?.[field]) : []
  return (
    <section className="stack tight" style={{ padding: '10px 0', borderTop: '1px solid var(--line)' }}>
      <div className="row">
        <span className="strong wrap">{name}</span>
        {only === null ? null : <span className="chip">{only}</span>}
        {only === null && fields.every((field) => field === 'took') ? <span className="chip">the same</span> : null}
      </div>
      <div className="diff">
        {fields.map((field) => (
          <Line key={field} name={field} from={before?.[field]} to={after?.[field] ?? null} />
        ))}
      </div>
    </section>
  )
}

export const Compare = ({ older, newer, onClose }: { older: Execution; newer: Execution; onClose(): void }) => {
  const [before, after] = [partsOf(older), partsOf(newer)]
  const ids = [...new Set([...after.keys(), ...before.keys()])]
  return (
    <DialogFrame title={`${titleOf(older)} and ${titleOf(newer)}`} size="lg" onClose={onClose}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard */}
      <section className="stack tight plan" tabIndex={0} aria-label="What differs" data-autofocus>
        <p className="dim">
          <Time at={older.auditing_data.created_at} />, {older.auditing_data.triggered_by}{' '}
          <span aria-hidden="true">→</span> <Time at={newer.auditing_data.created_at} />,{' '}
          {newer.auditing_data.triggered_by}
        </p>
        {ids.map((id) => (
          <Changed key={id} older={before.get(id)} newer={after.get(id)} />
        ))}
        <p className="dim small">
          Configuration and variables are compared with what runs now by the plan of “Roll back to this”.
        </p>
      </section>
    </DialogFrame>
  )
}
