/** A project: its environments, the variables that all of them have, and its settings. */

import { forms } from 'virtual:forms'
import { Button, Modal, Select, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, Problem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import type { Mode } from '../api/session.ts'
import { SchemaForm } from '../ui/form.tsx'
import { Icon } from '../ui/icons.tsx'
import { Answer, Empty, Failure } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { Tabs } from '../ui/tabs.tsx'
import { Variables } from '../ui/variables.tsx'
import { EnvironmentTile, modeWords } from './overview.tsx'

const sections = { environments: 'Environments', variables: 'Variables', settings: 'Settings' }

const NewEnvironment = ({ projectId, onClose }: { projectId: string; onClose(): void }) => {
  const [name, setName] = useState('')
  const [mode, setMode] = useState<Mode>('DEVELOPMENT')
  const queries = useQueryClient()
  const navigate = useNavigate()
  const making = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/project/{projectId}/environment', { params: { path: { projectId } }, body: { name, mode } }),
      ),
    async onSuccess({ id }) {
      await queries.invalidateQueries({ queryKey: ['environments', projectId] })
      onClose()
      await navigate({ to: '/e/$environmentId/$section', params: { environmentId: id, section: 'services' } })
    },
  })
  return (
    <Modal opened onClose={onClose} title="New environment" closeButtonProps={{ 'aria-label': 'Close' }}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          making.mutate()
        }}
      >
        <TextInput
          label="Name"
          data-autofocus
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={making.error?.message}
        />
        <Select
          label="Mode"
          value={mode}
          onChange={(value) => setMode(value as Mode)}
          data={Object.entries(modeWords).map(([value, label]) => ({ value, label }))}
        />
        <Button type="submit" loading={making.isPending} disabled={name.trim() === ''}>
          Create
        </Button>
      </form>
    </Modal>
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

const Settings = ({ projectId, value }: { projectId: string; value: Record<string, unknown> }) => {
  const may = useMay()
  const queries = useQueryClient()
  return (
    <SchemaForm
      schema={forms.project!}
      value={value}
      first={['name', 'description']}
      isReadOnly={!may('write')}
      saved="Saved."
      save={async (changes) => {
        await answerOf(
          client.PUT('/project/{projectId}', { params: { path: { projectId } }, body: changes as { name: string } }),
        )
        await Promise.all(['project', 'projects'].map((name) => queries.invalidateQueries({ queryKey: [name] })))
      }}
    />
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
          {section === 'settings' ? <Settings projectId={projectId} value={found} /> : null}
        </>
      )}
    </Answer>
  )
}
