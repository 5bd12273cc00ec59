/** The rollback of a failure, in the notice about it: only if the server offers one. */

import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { type Action, isNothingToDo, type Plan, planOf } from '../api/actions.ts'
import { useMay } from './place.ts'
import { PlanDialog } from './plan.tsx'
import { SmallButton } from './small-button.ts'

const idle = new Set(['UNTOUCHED', 'SKIPPED', 'REFUSED'])

const actingIn = (plan: Plan) =>
  plan.stages.flatMap(({ services }) => services).filter(({ effect }) => !idle.has(effect))

/** The version that one service is rolled back to, if a different one runs. */
const versionIn = (plan: Plan): string | undefined => {
  const [only, ...others] = actingIn(plan)
  if (only === undefined || others.length > 0) return undefined
  return only.changes.commit?.to?.slice(0, 7) ?? only.changes.image?.to ?? undefined
}

interface Props {
  target: Action['target']
  /** The deployment of the notice; another one may have another rollback. */
  executionId: string | undefined
}

export const RollBack = ({ target, executionId }: Props) => {
  const mayDeploy = useMay()('deploy')
  const [isAsked, ask] = useState(false)
  const action: Action = { verb: 'rollback', target }
  const { data: plan } = useQuery({
    queryKey: ['way back', target.id, executionId],
    queryFn: () =>
      planOf(action).catch((error: unknown) => {
        if (isNothingToDo(error)) return null
        throw error
      }),
    enabled: mayDeploy,
    staleTime: Number.POSITIVE_INFINITY,
  })
  if (plan == null || actingIn(plan).length === 0) return null
  const version = versionIn(plan)
  return (
    <>
      <SmallButton maw="100%" mt={8} onClick={() => ask(true)}>
        {version === undefined ? 'Roll back' : `Roll back to ${version}`}
      </SmallButton>
      {isAsked ? <PlanDialog action={action} onClose={() => ask(false)} /> : null}
    </>
  )
}
