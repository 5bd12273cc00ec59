/** A project: its environments, the variables that all of them have, and its settings. */

import { forms } from 'virtual:forms'
import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, inPath, Problem, type Schemas } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { Remove } from '../ui/dialog.tsx'
import { SchemaForm } from '../ui/form.tsx'
import { Icon } from '../ui/icons.tsx'
import { Answer, Empty, Failure } from '../ui/notices.tsx'
import { useMay, usePlace } from '../ui/place.ts'
import { namesOf, optionsOf, RecordForm } from '../ui/record-form.tsx'
import { Tabs } from '../ui/tabs.tsx'
import { Variables } from '../ui/variables.tsx'
import { EnvironmentTile, modeWords } from './overview.tsx'
import { ProjectRules } from './project-rules.tsx'

const sections = {
  environments: 'Environments',
  variables: 'Variables',
  rules: 'Deployment rules',
  settings: 'Settings',
}

const byRule = 'As the deployment rules say'

const NewEnvironment = ({ projectId, onClose }: { projectId: string; onClose(): void }) => {
  const { organizationId = '' } = usePlace()
  const navigate = useNavigate()
  const rules = useQuery(read.deploymentRules(projectId))
  const clusters = useQuery({ ...read.clusters(organizationId), enabled: organizationId !== '' })
  if (rules.isPending || clusters.isPending) return null
  const hasRules = (rules.data ?? []).length > 0
  const all = clusters.data ?? []
  const options = [...(hasRules ? [{ value: '', label: byRule }] : []), ...optionsOf(modeWords)]
  const usual = all.find(({ is_default: isDefault }) => isDefault) ?? all[0]
  return (
    <RecordForm
      title="New environment"
      button="Create"
      changed={['environments', 'organization environments']}
      onClose={onClose}
      fields={[
        { at: '/name', label: 'Name', isRequired: true },
        { at: '/mode', label: 'Mode', kind: 'choice', options, initial: hasRules ? '' : 'DEVELOPMENT' },
        {
          at: '/cluster_id',
          label: 'Cluster',
          kind: 'choice',
          options: [...(hasRules ? [{ value: '', label: byRule }] : []), ...namesOf(all)],
          initial: hasRules ? '' : usual?.id,
        },
      ]}
      save={async (body) => {
        const { id } = await answerOf(
          client.POST('/project/{projectId}/environment', { params: { path: { projectId } }, body: body as never }),
        )
        await read.refresh(['environments', projectId])
        await navigate({ to: '/e/$environmentId/$section', params: { environmentId: id, section: 'services' } })
      }}
    />
  )
}

const Environments = ({ projectId }: { projectId: string }) => {
  const environments = useQuery(read.environmentsOf(projectId))
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const make = may('write') ? (
    <Button leftSection={<Icon name="plus" size={14} />} onClick={() => setMaking(true)}>
      New environment
    </Button>
  ) : null
  return (
    <div className="stack">
      <Answer of={environments}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="No environments yet" actions={make}>
              <p>An environment holds services that run together, with their variables.</p>
            </Empty>
          ) : (
            <>
              <div className="row">{make}</div>
              <div className="grid">
                {rows.map((row) => (
                  <EnvironmentTile key={row.id} environment={row} />
                ))}
              </div>
            </>
          )
        }
      </Answer>
      {isMaking ? <NewEnvironment projectId={projectId} onClose={() => setMaking(false)} /> : null}
    </div>
  )
}

type Found = Schemas['Project']

const DeleteProject = ({ project }: { project: Found }) => {
  const navigate = useNavigate()
  return (
    <section className="card form">
      <header>
        <h2 className="grow">Delete the project</h2>
        <Remove
          name={project.name}
          what="Delete"
          asksName
          changed={['projects', 'organization environments']}
          consequence="Its environments, their settings, variables and history are deleted. It must not have services that are deployed."
          act={async () => {
            await answerOf(client.DELETE('/project/{projectId}', inPath({ projectId: project.id })))
            await navigate({ to: '/o/$organizationId', params: { organizationId: project.organization.id } })
          }}
        />
      </header>
    </section>
  )
}

const Settings = ({ project }: { project: Found }) => {
  const { id: projectId } = project
  const may = useMay()
  const form = (
    <SchemaForm
      schema={forms.project!}
      value={project}
      first={['name', 'description']}
      isReadOnly={!may('write')}
      saved="Saved."
      save={async (changes) => {
        await answerOf(
          client.PUT('/project/{projectId}', { params: { path: { projectId } }, body: changes as { name: string } }),
        )
        await read.refresh('project', 'projects')
      }}
    />
  )
  return (
    <div className="stack wide">
      {form}
      {may('delete') ? <DeleteProject project={project} /> : null}
    </div>
  )
}

export const Project = () => {
  const { projectId, section } = useParams({ from: '/frame/p/$projectId/$section' })
  const project = useQuery(read.project(projectId))
  const { name } = project.data ?? {}
  read.useTitle(name)
  if (!(section in sections)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={project}>
      {(found) => (
        <>
          <div className="head">
            <h1>{found.name}</h1>
          </div>
          <Tabs base={`/p/${projectId}`} at={section} sections={sections} label="Of this project" />
          {section === 'environments' ? <Environments projectId={projectId} /> : null}
          {section === 'variables' ? <Variables scope="PROJECT" parentId={projectId} /> : null}
          {section === 'rules' ? <ProjectRules projectId={projectId} organizationId={found.organization.id} /> : null}
          {section === 'settings' ? <Settings project={found} /> : null}
        </>
      )}
    </Answer>
  )
}
