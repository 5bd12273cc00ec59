/** A terraform service: the actions on its module, and its resources. */

import { Button } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, resultsOf } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { DeploymentLog } from '../../ui/deployment-log.tsx'
import { DialogButtons, DialogFrame, ProblemNote } from '../../ui/dialog.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'
import { Outputs } from './outputs.tsx'
import type { Shown } from './shown.ts'

const actions = {
  PLAN: {
    button: 'Plan only',
    title: 'Plan',
    text: 'Runs init and plan, and changes nothing. The plan is in the log of the deployment.',
  },
  FORCE_UNLOCK: {
    button: 'Unlock the state',
    title: 'Unlock the state of',
    text: 'A state stays locked after a run whose end is unknown. Unlock it when you have checked what that run did.',
  },
  MIGRATE_STATE: {
    button: 'Move the state',
    title: 'Move the state of',
    text: 'Moves the state between this server and the backend of the module, after the setting was changed.',
  },
} as const

type Action = keyof typeof actions

const Ask = ({ service, action, onClose }: { service: read.Service; action: Action; onClose(): void }) => {
  const { id, name, environmentId } = service
  const { button, title, text } = actions[action]
  const doing = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/terraform/{terraformId}/deploy', { params: { path: { terraformId: id } }, body: { action } }),
      ),
    onSuccess() {
      tell(`${title} ${name}: requested.`, { to: `/e/${environmentId}/deployments`, text: 'See the deployment' })
      void read.refresh(['history', environmentId])
      onClose()
    },
  })
  return (
    <DialogFrame title={`${title} ${name}`} onClose={onClose}>
      <div className="stack">
        <p>{text}</p>
        <ProblemNote error={doing.error} />
        <DialogButtons onClose={onClose}>
          <Button data-autofocus loading={doing.isPending} onClick={() => doing.mutate()}>
            {button}
          </Button>
        </DialogButtons>
      </div>
    </DialogFrame>
  )
}

export const TerraformActions = ({ service }: { service: read.Service }) => {
  const may = useMay()
  const [asked, ask] = useState<Action | null>(null)
  if (!may('deploy')) return null
  return (
    <div className="row wraps">
      {Object.entries(actions).map(([action, { button }]) => (
        <SmallButton key={action} onClick={() => ask(action as Action)}>
          {button}
        </SmallButton>
      ))}
      {asked === null ? null : <Ask service={service} action={asked} onClose={() => ask(null)} />}
    </div>
  )
}

/** The last output of the tool: the plan, and the applied changes. */
export const LastRun = ({ service }: { service: read.Service }) => {
  const { kind, id, environmentId } = service
  const may = useMay()
  const history = useQuery(read.serviceHistory(kind, id, environmentId))
  return (
    <Answer of={history}>
      {(runs) => {
        const last = runs[0]?.identifier.execution_id
        return last === undefined ? (
          <p className="dim">{may('deploy') ? 'It has not run yet: plan it, or deploy it.' : 'It has not run yet.'}</p>
        ) : (
          <DeploymentLog key={last} environmentId={environmentId} executionId={last} serviceId={id} />
        )
      }}
    </Answer>
  )
}

const Resources = ({ service }: { service: read.Service }) => {
  const resources = useQuery({
    queryKey: ['history', service.environmentId, 'resources', service.id],
    queryFn: async () => {
      const params = { path: { terraformId: service.id } }
      return resultsOf(client.GET('/terraform/{terraformId}/terraformResources', { params }))
    },
  })
  return (
    <Answer of={resources}>
      {(rows) =>
        rows.length === 0 ? (
          <Empty title="No resources in the state">
            <p>
              Once it is applied, what the module manages is listed here. A module with a backend of its own keeps its
              state there.
            </p>
          </Empty>
        ) : (
          <ListTable label="Resources" isCard heads={{ Resource: '', Provider: 'optional', Attributes: 'optional' }}>
            {rows.map(({ id, address, mode, provider, attributes }) => (
              <tr key={id}>
                <td className="mono wrap">
                  {address} {mode === 'data' ? <span className="chip">data source</span> : null}
                </td>
                <td className="mono wrap optional dim">{provider}</td>
                <td className="wrap optional dim small">{Object.keys(attributes).join(', ')}</td>
              </tr>
            ))}
          </ListTable>
        )
      }
    </Answer>
  )
}

export const TerraformState = ({ service }: Shown) => (
  <div className="stack wide">
    <Resources service={service} />
    <Outputs service={service} />
  </div>
)
