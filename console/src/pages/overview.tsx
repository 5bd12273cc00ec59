/** All projects of an organization with the live state of their environments. */
import { Button, Modal, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { FilterField } from '../ui/filter-field.tsx'
import { Icon } from '../ui/icons.tsx'
import { Answer, Empty } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { Freshness, StateMark } from '../ui/state.tsx'
import { submitting } from '../ui/submitting.ts'
import { Time } from '../ui/time.tsx'

export const modeWords: Record<string, string> = {
  DEVELOPMENT: 'Development',
  PREVIEW: 'Preview',
  STAGING: 'Staging',
  PRODUCTION: 'Production',
}

type Row = NonNullable<ReturnType<typeof useEnvironments>['data']>[number]

const useEnvironments = (projectId: string) => useQuery(read.environmentsOf(projectId))

const countWords = (count: number): string =>
  count === 0 ? 'No services' : count === 1 ? '1 service' : `${count} services`

export const EnvironmentTile = ({ environment }: { environment: Row }) => {
  const { id, name, mode, cluster, services_overview: overview, deployment_status: status } = environment
  return (
    <Link
      to="/e/$environmentId/$section"
      params={{ environmentId: id, section: 'services' }}
      className="card tile stack tight"
    >
      <div className="row">
        <span className="strong clip">{name}</span>
        <span className={`chip push ${mode === 'PRODUCTION' ? 'busy' : ''}`}>{modeWords[mode]}</span>
      </div>
      <div className="row wraps">
        <StateMark state={status?.state ?? 'READY'} />
        <Freshness status={status?.deployment_status ?? ''} />
      </div>
      {status?.error === undefined ? null : (
        <p className="small state bad wrap" style={{ whiteSpace: 'normal' }}>
          {status.error.message}
        </p>
      )}
      <p className="dim small clip">
        {countWords(overview.service_count)} on {cluster.name}
        {status?.last_deployment_date == null ? null : (
          <>
            {' · '}
            <Time at={status.last_deployment_date} />
          </>
        )}
      </p>
    </Link>
  )
}

interface SectionProps {
  id: string
  name: string
  search: string
}

const Tiles = ({ rows }: { rows: readonly Row[] }) =>
  rows.length === 0 ? (
    <p className="dim small">No environment matches the filter.</p>
  ) : (
    <div className="grid">
      {rows.map((row) => (
        <EnvironmentTile key={row.id} environment={row} />
      ))}
    </div>
  )

const ProjectSection = ({ id, name, search }: SectionProps) => {
  const environments = useEnvironments(id)
  const fits = (row: Row): boolean => `${name} ${row.name} ${modeWords[row.mode]}`.toLowerCase().includes(search)
  return (
    <section className="stack tight">
      <h2>
        <Link
          to="/p/$projectId/$section"
          params={{ projectId: id, section: 'environments' }}
          className="wrap"
          style={{ color: 'inherit' }}
        >
          {name}
        </Link>
      </h2>
      <Answer of={environments}>
        {(rows) =>
          rows.length === 0 ? (
            <p className="dim small">
              No environments yet.{' '}
              <Link to="/p/$projectId/$section" params={{ projectId: id, section: 'environments' }}>
                Create one
              </Link>
            </p>
          ) : (
            <Tiles rows={rows.filter(fits)} />
          )
        }
      </Answer>
    </section>
  )
}

const NewProject = ({ organizationId, onClose }: { organizationId: string; onClose(): void }) => {
  const [name, setName] = useState('')
  const navigate = useNavigate()
  const making = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST('/organization/{organizationId}/project', { params: { path: { organizationId } }, body: { name } }),
      ),
    async onSuccess({ id }) {
      await read.refresh('projects')
      onClose()
      await navigate({ to: '/p/$projectId/$section', params: { projectId: id, section: 'environments' } })
    },
  })
  return (
    <Modal opened onClose={onClose} title="New project" closeButtonProps={{ 'aria-label': 'Close' }}>
      <form className="stack" onSubmit={submitting(() => making.mutate())}>
        <TextInput
          label="Name"
          data-autofocus
          required
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={making.error?.message}
        />
        <Button type="submit" loading={making.isPending} disabled={name.trim() === ''}>
          Create
        </Button>
      </form>
    </Modal>
  )
}

export const Overview = () => {
  const { organizationId } = useParams({ from: '/frame/o/$organizationId' })
  const { q = '' } = useSearch({ from: '/frame/o/$organizationId' })
  const navigate = useNavigate()
  const projects = useQuery(read.projects(organizationId))
  const { data: organizations } = useQuery(read.organizations())
  const may = useMay()
  const [isMaking, setMaking] = useState(false)
  const name = organizations?.find(({ id }) => id === organizationId)?.name
  read.useTitle(name)
  const make = may('write') ? (
    <Button leftSection={<Icon name="plus" size={14} />} onClick={() => setMaking(true)}>
      New project
    </Button>
  ) : null
  return (
    <>
      <div className="head">
        <h1 className="grow">{name ?? 'Overview'}</h1>
        <div className="row actions">
          <FilterField
            label="Filter environments"
            value={q}
            onChange={(text) => void navigate({ to: '.', search: { q: text || undefined }, replace: true })}
          />
          {make}
        </div>
      </div>
      <Answer of={projects}>
        {(list) =>
          list.length === 0 ? (
            <Empty title="No projects yet" actions={make}>
              <p>A project holds environments, such as development and production; an environment holds services.</p>
            </Empty>
          ) : (
            <div className="stack wide">
              {list.map((each) => (
                <ProjectSection key={each.id} id={each.id} name={each.name} search={q.toLowerCase()} />
              ))}
            </div>
          )
        }
      </Answer>
      {isMaking ? <NewProject organizationId={organizationId} onClose={() => setMaking(false)} /> : null}
    </>
  )
}
