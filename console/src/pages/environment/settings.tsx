/** The name and the mode of an environment, when it runs, and whether pull requests get a clone of it. */
import { forms } from 'virtual:forms'
import { Button } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, type Schemas } from '../../api/client.ts'
import { SchemaForm } from '../../ui/form.tsx'
import { Answer } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { type FieldSpec, RecordForm } from '../../ui/record-form.tsx'
import { tell } from '../../ui/toasts.tsx'

type Rule = Schemas['EnvironmentDeploymentRule']

const days = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY'].map((value) => ({
  value,
  label: value.charAt(0) + value.slice(1).toLowerCase(),
}))

const isTimed = (values: Readonly<Record<string, unknown>>): boolean => values['/auto_stop'] === true

/** A moment of the rule as the time of a day. */
const timeOf = (moment: string): string => /T(\d\d:\d\d)/.exec(moment)?.[1] ?? moment

const fields: readonly FieldSpec[] = [
  {
    at: '/auto_preview',
    label: 'Each pull request gets a preview: a clone of this environment, with its variables and secrets',
    kind: 'switch',
  },
  { at: '/auto_stop', label: 'It runs only in the hours below, and is stopped outside of them', kind: 'switch' },
  { at: '/start_time', label: 'Starts at', placeholder: '08:00', when: isTimed },
  { at: '/stop_time', label: 'Stops at', placeholder: '19:00', when: isTimed },
  { at: '/weekdays', label: 'On', kind: 'many', options: days, when: isTimed },
  { at: '/timezone', label: 'Time zone', placeholder: 'Europe/Paris', when: isTimed },
]

/** A time of a day as the rule has it. */
const momentOf = (time: unknown): unknown =>
  typeof time === 'string' && /^\d\d:\d\d$/.test(time) ? `1970-01-01T${time}:00.000Z` : time

const RuleFacts = ({ rule }: { rule: Rule }) => (
  <dl className="facts">
    <dt>Previews of pull requests</dt>
    <dd>{rule.auto_preview === true ? 'yes' : 'no'}</dd>
    <dt>Runs</dt>
    <dd className="wrap">
      {rule.auto_stop === true
        ? `${rule.weekdays.map((day) => day.charAt(0) + day.slice(1).toLowerCase()).join(', ')}, ${timeOf(rule.start_time)} to ${timeOf(rule.stop_time)} (${rule.timezone})`
        : 'always'}
    </dd>
  </dl>
)

const DeploymentRule = ({ environmentId }: { environmentId: string }) => {
  const may = useMay()
  const [isEditing, setEditing] = useState(false)
  const rule = useQuery({
    queryKey: ['deployment rule', environmentId],
    queryFn: () =>
      answerOf(client.GET('/environment/{environmentId}/deploymentRule', { params: { path: { environmentId } } })),
  })
  return (
    <section className="card">
      <header>
        <h2 className="grow">Deployment rule</h2>
        {may('write') && rule.data !== undefined ? (
          <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>
            Edit the rule
          </Button>
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
          record={{ ...rule.data, start_time: timeOf(rule.data.start_time), stop_time: timeOf(rule.data.stop_time) }}
          changed={['deployment rule', 'previews']}
          onClose={() => setEditing(false)}
          save={async ({ start_time: start, stop_time: stop, ...body }) => {
            const times = {
              ...(start === undefined ? {} : { start_time: momentOf(start) }),
              ...(stop === undefined ? {} : { stop_time: momentOf(stop) }),
            }
            await answerOf(
              client.PUT('/environment/{environmentId}/deploymentRule/{deploymentRuleId}', {
                params: { path: { environmentId, deploymentRuleId: rule.data.id } },
                body: { ...body, ...times } as never,
              }),
            )
            tell('The rule was saved.')
          }}
        />
      ) : null}
    </section>
  )
}

export const Settings = ({ environment }: { environment: Schemas['Environment'] }) => {
  const may = useMay()
  const queries = useQueryClient()
  const { id: environmentId } = environment
  return (
    <div className="stack wide form">
      <SchemaForm
        schema={forms.environment!}
        value={environment}
        first={['name', 'mode']}
        hidden={['cluster', 'cluster_id']}
        isReadOnly={!may('write')}
        saved="Saved."
        save={async (changes) => {
          await answerOf(
            client.PUT('/environment/{environmentId}', { params: { path: { environmentId } }, body: changes as never }),
          )
          await Promise.all(
            ['environment', 'environments'].map((name) => queries.invalidateQueries({ queryKey: [name] })),
          )
        }}
      />
      <DeploymentRule environmentId={environmentId} />
    </div>
  )
}
