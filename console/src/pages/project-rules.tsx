/**
 * The deployment rules of a project: the settings that a new environment gets, chosen by name, in the order of the rules.
 */

import { ActionIcon } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, type Schemas } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { NewButton, Remove } from '../ui/dialog.tsx'
import { asSent, asShown, hourFields, hoursOf, usualHours } from '../ui/hours.ts'
import { Icon } from '../ui/icons.tsx'
import { Empty } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { type FieldSpec, namesOf, type Option, optionsOf, RecordForm } from '../ui/record-form.tsx'
import { type Column, Rows } from '../ui/rows.tsx'
import { SmallButton } from '../ui/small-button.ts'
import { tell, tellProblem } from '../ui/toasts.tsx'
import { modeWords } from './overview.tsx'

type Rule = Schemas['DeploymentRule']

const fieldsOf = (clusters: readonly Option[]): readonly FieldSpec[] => [
  { at: '/name', label: 'Name', isRequired: true },
  { at: '/description', label: 'Description' },
  {
    at: '/wildcard',
    label: 'For environments with a name like',
    placeholder: 'feature-*',
    hint: '* stands for any text, ? for one character. A rule without a pattern is for no environment.',
    isRequired: true,
    initial: '*',
  },
  {
    at: '/mode',
    label: 'Mode',
    kind: 'choice',
    options: optionsOf(modeWords),
    isRequired: true,
    initial: 'DEVELOPMENT',
  },
  {
    at: '/cluster_id',
    label: 'Cluster',
    kind: 'choice',
    options: clusters,
    isRequired: true,
    initial: clusters[0]?.value,
  },
  ...hourFields,
]

interface EditorProps {
  projectId: string
  clusters: readonly Option[]
  rule: Rule | undefined
  onClose(): void
}

const Editor = ({ projectId, clusters, rule, onClose }: EditorProps) => (
  <RecordForm
    title={rule === undefined ? 'New deployment rule' : `Edit ${rule.name}`}
    button={rule === undefined ? 'Create' : 'Save'}
    fields={fieldsOf(clusters)}
    record={rule === undefined ? undefined : asShown(rule)}
    changed={['deployment rules']}
    onClose={onClose}
    save={async (body) => {
      await (rule === undefined
        ? answerOf(
            client.POST('/project/{projectId}/deploymentRule', {
              params: { path: { projectId } },
              body: asSent({ ...usualHours, ...body }) as never,
            }),
          )
        : answerOf(
            client.PUT('/project/{projectId}/deploymentRule/{deploymentRuleId}', {
              params: { path: { projectId, deploymentRuleId: rule.id } },
              body: asSent(body) as never,
            }),
          ))
      tell(rule === undefined ? 'The rule was created.' : 'Saved.')
    }}
  />
)

const useOrder = (projectId: string) => {
  return useMutation({
    mutationFn: (ids: string[]) =>
      answerOf(
        client.PUT('/project/{projectId}/deploymentRule/order', {
          params: { path: { projectId } },
          body: { project_deployment_rule_ids_in_order: ids },
        }),
      ),
    onSettled: () => read.refresh(['deployment rules', projectId]),
    onError: tellProblem,
  })
}

/** The rule trades places with the one next to it. */
const moved = (ids: readonly string[], at: number, by: -1 | 1): string[] => {
  const next = [...ids]
  next[at] = ids[at + by]!
  next[at + by] = ids[at]!
  return next
}

const Moves = ({ rules, at, move }: { rules: readonly Rule[]; at: number; move(ids: string[]): void }) => {
  const ids = rules.map(({ id }) => id)
  return (
    <>
      {([-1, 1] as const).map((by) => (
        <ActionIcon
          key={by}
          variant="default"
          size={26}
          aria-label={`Try ${rules[at]!.name.slice(0, 150)} ${by === -1 ? 'earlier' : 'later'}`}
          disabled={ids[at + by] === undefined}
          onClick={() => move(moved(ids, at, by))}
        >
          <Icon name={by === -1 ? 'up' : 'lower'} size={14} />
        </ActionIcon>
      ))}
    </>
  )
}

const columnsOf = (clusters: readonly Option[]): readonly Column<Rule>[] => [
  {
    title: 'Rule',
    show: ({ name, description }) => (
      <div style={{ minWidth: 100 }}>
        <span className="strong">{name}</span>
        {description ? <p className="dim small wrap">{description}</p> : null}
      </div>
    ),
  },
  {
    title: 'For names like',
    show: ({ wildcard }) =>
      wildcard === '' ? <span className="dim">none: it has no pattern</span> : <code className="wrap">{wildcard}</code>,
  },
  { title: 'Mode', look: 'tight optional', show: ({ mode }) => modeWords[mode] ?? mode },
  {
    title: 'Cluster',
    look: 'optional',
    show: ({ cluster_id: id }) =>
      clusters.find(({ value }) => value === id)?.label ?? <span className="dim">gone: the default one is used</span>,
  },
  { title: 'Runs', look: 'optional', show: (rule) => hoursOf(rule) },
]

export const ProjectRules = ({ projectId, organizationId }: { projectId: string; organizationId: string }) => {
  const may = useMay()
  const rules = useQuery(read.deploymentRules(projectId))
  const { data: clusters = [] } = useQuery(read.clusters(organizationId))
  const [opened, open] = useState<Rule | 'new' | null>(null)
  const order = useOrder(projectId)
  const options = namesOf(clusters)
  const make = may('write') ? <NewButton onClick={() => open('new')}>New deployment rule</NewButton> : null
  const actions: Column<Rule> = {
    title: 'Actions',
    look: 'tight',
    show: (rule) => (
      <span className="row wraps">
        {may('write') ? (
          <>
            <Moves rules={rules.data!} at={rules.data!.indexOf(rule)} move={(ids) => order.mutate(ids)} />
            <SmallButton aria-label={`Edit ${rule.name}`.slice(0, 200)} onClick={() => open(rule)}>
              Edit
            </SmallButton>
          </>
        ) : null}
        {may('delete') ? (
          <Remove
            name={rule.name}
            what="Delete"
            changed={['deployment rules']}
            consequence="Environments that exist keep what it gave them."
            act={() =>
              answerOf(
                client.DELETE(
                  '/project/{projectId}/deploymentRule/{deploymentRuleId}',
                  inPath({ projectId, deploymentRuleId: rule.id }),
                ),
              )
            }
          />
        ) : null}
      </span>
    ),
  }
  return (
    <div className="stack">
      <p className="dim">
        A new environment gets the mode, the cluster and the hours of the first rule that matches its name, unless
        others are chosen. Existing environments do not change.
      </p>
      {rules.data?.length === 0 ? null : make}
      <Rows
        of={rules}
        label="Deployment rules"
        columns={[...columnsOf(options), ...(may('write') || may('delete') ? [actions] : [])]}
        empty={
          <Empty title="No deployment rules yet" actions={make}>
            <p>A rule can send every feature-* to a small cluster, and stop it at night.</p>
          </Empty>
        }
      />
      {opened === null ? null : (
        <Editor
          projectId={projectId}
          clusters={options}
          rule={opened === 'new' ? undefined : opened}
          onClose={() => open(null)}
        />
      )}
    </div>
  )
}
