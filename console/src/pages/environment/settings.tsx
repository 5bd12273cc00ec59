/** The name and the mode of an environment, when it runs, and whether pull requests get a clone of it. */

import { forms } from 'virtual:forms'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, type Schemas } from '../../api/client.ts'
import { refresh } from '../../api/queries.ts'
import { SchemaForm } from '../../ui/form.tsx'
import { asSent, asShown, hourFields, hoursOf } from '../../ui/hours.ts'
import { Answer } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, RecordForm } from '../../ui/record-form.tsx'
import type { Schema } from '../../ui/schema.ts'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'

type Rule = Schemas['EnvironmentDeploymentRule']

const fields: readonly FieldSpec[] = [
  {
    at: '/auto_preview',
    label: 'Each pull request gets a preview: a clone of this environment, with its variables and secrets',
    kind: 'switch',
  },
  ...hourFields,
]

const RuleFacts = ({ rule }: { rule: Rule }) => (
  <dl className="facts">
    <dt>Previews of pull requests</dt>
    <dd>{rule.auto_preview === true ? 'yes' : 'no'}</dd>
    <dt>Runs</dt>
    <dd className="wrap">{hoursOf(rule)}</dd>
  </dl>
)

const DeploymentRule = ({ environmentId }: { environmentId: string }) => {
  const may = useMay()
  const [isEditing, setEditing] = useState(false)
  const rule = useQuery({
    queryKey: ['deployment rule', environmentId],
    queryFn: () => answerOf(client.GET('/environment/{environmentId}/deploymentRule', inPath({ environmentId }))),
  })
  return (
    <section className="card">
      <header>
        <h2 className="grow">Deployment rule</h2>
        {may('write') && rule.data !== undefined ? (
          <SmallButton onClick={() => setEditing(true)}>Edit the rule</SmallButton>
        ) : null}
      </header>
      <div className="body">
        <Answer of={rule}>{(found) => <RuleFacts rule={found} />}</Answer>
      </div>
      {isEditing && rule.data !== undefined ? (
        <RecordForm
          title="Deployment rule"
          button="Save"
          fields={fields}
          record={asShown(rule.data)}
          changed={['deployment rule', 'previews']}
          onClose={() => setEditing(false)}
          save={async (body) => {
            await answerOf(
              client.PUT('/environment/{environmentId}/deploymentRule/{deploymentRuleId}', {
                params: { path: { environmentId, deploymentRuleId: rule.data.id } },
                body: asSent(body) as never,
              }),
            )
            tell('The rule was saved.')
          }}
        />
      ) : null}
    </section>
  )
}

/** The default mode of a new environment does not matter for this one. */
const { properties: { mode, ...others } = {} } = forms.environment!
const schema: Schema = { properties: { ...others, mode: { ...mode, description: '' } } }

export const Settings = ({ environment }: { environment: Schemas['Environment'] }) => {
  const may = useMay()
  const { id: environmentId } = environment
  return (
    <div className="stack wide form">
      <SchemaForm
        schema={schema}
        value={environment}
        first={['name', 'mode']}
        hidden={['cluster', 'cluster_id']}
        isReadOnly={!may('write')}
        saved="Saved."
        save={async (changes) => {
          await answerOf(
            client.PUT('/environment/{environmentId}', { params: { path: { environmentId } }, body: changes as never }),
          )
          await refresh('environment', 'environments')
        }}
      />
      <DeploymentRule environmentId={environmentId} />
    </div>
  )
}
