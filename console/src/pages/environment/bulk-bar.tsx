/** What can be done to the services that are chosen. */
import { Button } from '@mantine/core'
import { useState } from 'react'
import { type Action, type Member, type Verb, verbsOfSeveral } from '../../api/actions.ts'
import { useMay } from '../../ui/place.ts'
import { PlanDialog, wordsOf } from '../../ui/plan.tsx'

interface Props {
  environmentId: string
  members: readonly Member[]
  onDone(): void
}

const targetOf = ({ environmentId, members }: Props, verb: Verb): Action['target'] => ({
  id: environmentId,
  environmentId,
  // All of them by name before they go, else as many as can be read at a glance.
  name:
    verb === 'delete' || members.length < 4 ? members.map(({ name }) => name).join(', ') : `${members.length} services`,
  several: members,
})

export const BulkBar = (props: Props) => {
  const { members, onDone } = props
  const may = useMay()
  const [asked, ask] = useState<Verb | null>(null)
  if (members.length === 0) return null
  // Only what all of them can be told: nothing is left out silently.
  const verbs = (Object.keys(verbsOfSeveral) as Verb[])
    .filter((verb) => may(verb === 'delete' ? 'delete' : 'deploy'))
    .filter((verb) => members.every(({ kind }) => verbsOfSeveral[verb]?.includes(kind) === true))
  return (
    <section className="bulk card row wraps" aria-label="Chosen services">
      <span className="strong" role="status">
        {members.length === 1 ? '1 service chosen' : `${members.length} services chosen`}
      </span>
      <span className="row wraps push">
        {verbs.map((verb) => (
          <Button
            key={verb}
            size="compact-sm"
            variant="default"
            color={verb === 'delete' ? 'red' : 'blue'}
            onClick={() => ask(verb)}
          >
            {wordsOf[verb].button}
          </Button>
        ))}
        <Button size="compact-sm" variant="subtle" onClick={onDone}>
          Clear
        </Button>
      </span>
      {asked === null ? null : (
        <PlanDialog
          action={{ verb: asked, target: targetOf(props, asked) }}
          onClose={() => ask(null)}
          onDone={onDone}
        />
      )}
    </section>
  )
}
