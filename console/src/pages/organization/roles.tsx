/** The rights of each role, and the matrix of the organization's custom roles. */

import { Checkbox, Select, TextInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { answerOf, client, inPath, resultsOf, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import type { Mode } from '../../api/session.ts'
import { FormDialog, NewButton, Remove } from '../../ui/dialog.tsx'
import { useMay } from '../../ui/place.ts'
import { optionsOf } from '../../ui/record-form.tsx'
import { Rows } from '../../ui/rows.tsx'
import { Scroll } from '../../ui/scroll.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { tell } from '../../ui/toasts.tsx'
import { modeWords } from '../overview.tsx'
import { type Props, useOrganizationList } from './list.ts'

type Role = Schemas['CustomRole']
type Level = 'NO_ACCESS' | 'VIEWER' | 'DEPLOYER' | 'MANAGER'
type ClusterLevel = 'VIEWER' | 'ENV_CREATOR' | 'ADMIN'

export const useRoles = (organizationId: string, isAsked = true) =>
  useQuery({
    queryKey: ['roles', organizationId],
    queryFn: () => resultsOf(client.GET('/organization/{organizationId}/availableRole', inPath({ organizationId }))),
    enabled: isAsked,
  })

const modes = Object.keys(modeWords) as Mode[]

const levelWords: Record<Level, string> = {
  NO_ACCESS: 'no access',
  VIEWER: 'views',
  DEPLOYER: 'deploys',
  MANAGER: 'manages',
}
const clusterWords: Record<ClusterLevel, string> = {
  VIEWER: 'views',
  ENV_CREATOR: 'creates environments on it',
  ADMIN: 'administers',
}
interface ProjectRow {
  id: string
  name: string
  isAdmin: boolean
  levels: Partial<Record<Mode, Level>>
}

const meaning: Record<string, string> = {
  owner: 'Everything, including a transfer of the organization',
  admin: 'Everything except a transfer of the organization',
  devops: 'Projects, clusters, webhooks and tokens',
  viewer: 'Reads everything but secrets',
  billing: 'Reads settings and clusters',
}

const rowOf = (role: Role | undefined, id: string, name: string): ProjectRow => {
  const found = role?.project_permissions.find(({ project_id }) => project_id === id)
  return {
    id,
    name,
    isAdmin: found?.is_admin === true,
    levels: Object.fromEntries((found?.permissions ?? []).map((each) => [each.environment_type, each.permission])),
  }
}

interface MatrixProps {
  rows: readonly ProjectRow[]
  /** Absent if it is read-only. */
  onChange?: ((row: ProjectRow) => void) | undefined
}

const Cell = ({ row, mode, onChange }: { row: ProjectRow; mode: Mode; onChange: MatrixProps['onChange'] }) => {
  const level = row.levels[mode] ?? 'NO_ACCESS'
  if (onChange === undefined)
    return (
      <span className={`nowrap ${level === 'NO_ACCESS' && !row.isAdmin ? 'dim' : ''}`}>
        {row.isAdmin ? 'manages' : levelWords[level]}
      </span>
    )
  return (
    <Select
      size="xs"
      aria-label={`${modeWords[mode]} of ${row.name}`}
      miw={112}
      disabled={row.isAdmin}
      data={optionsOf(levelWords)}
      value={row.isAdmin ? 'MANAGER' : level}
      onChange={(next) => onChange({ ...row, levels: { ...row.levels, [mode]: next as Level } })}
    />
  )
}

const Matrix = ({ rows, onChange }: MatrixProps) => (
  <Scroll label="Rights in projects">
    <table className="list">
      <thead>
        <tr>
          <th>Project</th>
          <th>Administers it</th>
          {modes.map((mode) => (
            <th key={mode}>{modeWords[mode]}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id}>
            <td className="wrap" style={{ minWidth: 120 }}>
              {row.name}
            </td>
            <td>
              {onChange === undefined ? (
                row.isAdmin ? (
                  'yes'
                ) : (
                  <span className="dim">no</span>
                )
              ) : (
                <Checkbox
                  aria-label={`Administers ${row.name}`}
                  checked={row.isAdmin}
                  onChange={(event) => onChange({ ...row, isAdmin: event.currentTarget.checked })}
                />
              )}
            </td>
            {modes.map((mode) => (
              <td key={mode}>
                <Cell row={row} mode={mode} onChange={onChange} />
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </Scroll>
)

const bodyOf = (
  name: string,
  description: string,
  rows: readonly ProjectRow[],
  clusters: Record<string, ClusterLevel>,
) => ({
  name,
  description,
  cluster_permissions: Object.entries(clusters).map(([cluster_id, permission]) => ({ cluster_id, permission })),
  project_permissions: rows.map(({ id, isAdmin, levels }) => ({
    project_id: id,
    is_admin: isAdmin,
    permissions: modes.map((mode) => ({ environment_type: mode, permission: levels[mode] ?? ('NO_ACCESS' as const) })),
  })),
})

const Editor = ({ organizationId, role, onClose }: Props & { role: Role | undefined; onClose(): void }) => {
  const projects = useQuery(read.projects(organizationId))
  const clusters = useQuery(read.clusters(organizationId))
  const [name, setName] = useState(role?.name ?? '')
  const [description, setDescription] = useState(role?.description ?? '')
  const [changed, setChanged] = useState<Record<string, ProjectRow>>({})
  const [levels, setLevels] = useState<Record<string, ClusterLevel>>(() =>
    Object.fromEntries((role?.cluster_permissions ?? []).map((each) => [each.cluster_id, each.permission])),
  )
  const rows = (projects.data ?? []).map(({ id, name: title }) => changed[id] ?? rowOf(role, id, title))
  return (
    <FormDialog
      title={role === undefined ? 'New role' : `Edit ${role.name}`}
      button="Save"
      size="72rem"
      isReady={name !== '' && projects.data !== undefined && clusters.data !== undefined}
      changed={['custom roles', 'roles']}
      onClose={onClose}
      act={async () => {
        const body = bodyOf(name, description, rows, levels)
        await (role === undefined
          ? answerOf(client.POST('/organization/{organizationId}/customRole', { ...inPath({ organizationId }), body }))
          : answerOf(
              client.PUT('/organization/{organizationId}/customRole/{customRoleId}', {
                params: { path: { organizationId, customRoleId: role.id } },
                body,
              }),
            ))
        tell('The role was saved. It counts from the next request of those who have it.')
        onClose()
      }}
    >
      <div className="grid">
        <TextInput
          label="Name"
          required
          data-autofocus
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <TextInput
          label="Description"
          value={description}
          onChange={(event) => setDescription(event.currentTarget.value)}
        />
      </div>
      <Matrix rows={rows} onChange={(row) => setChanged({ ...changed, [row.id]: row })} />
      <div className="grid">
        {(clusters.data ?? []).map((each) => (
          <Select
            key={each.id}
            label={<span className="wrap">{`Cluster ${each.name}`}</span>}
            data={optionsOf(clusterWords)}
            value={levels[each.id] ?? 'VIEWER'}
            onChange={(next) => setLevels({ ...levels, [each.id]: next as ClusterLevel })}
          />
        ))}
      </div>
    </FormDialog>
  )
}

const CustomRole = ({ organizationId, role, onEdit }: Props & { role: Role; onEdit(): void }) => {
  const may = useMay()
  return (
    <section className="card">
      <header>
        <h2 className="wrap">{role.name}</h2>
        <span className="dim wrap grow">{role.description}</span>
        {may('members') ? (
          <span className="row push">
            <SmallButton aria-label={`Edit ${role.name}`.slice(0, 200)} onClick={onEdit}>
              Edit
            </SmallButton>
            <Remove
              name={role.name}
              what="Delete"
              changed={['custom roles', 'roles']}
              consequence="Only a role without members can be deleted."
              act={() =>
                answerOf(
                  client.DELETE(
                    '/organization/{organizationId}/customRole/{customRoleId}',
                    inPath({ organizationId, customRoleId: role.id }),
                  ),
                )
              }
            />
          </span>
        ) : null}
      </header>
      <Matrix rows={role.project_permissions.map((each) => rowOf(role, each.project_id, each.project_name))} />
      {role.cluster_permissions.length === 0 ? null : (
        <p className="body dim wrap">
          Clusters:{' '}
          {role.cluster_permissions
            .map(({ cluster_name: cluster, permission }) => `${cluster}: ${clusterWords[permission]}`)
            .join(', ')}
        </p>
      )}
    </section>
  )
}

export const Roles = ({ organizationId }: Props) => {
  const may = useMay()
  const [opened, open] = useState<Role | 'new' | null>(null)
  const roles = useRoles(organizationId)
  const custom = useOrganizationList('custom roles', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/customRole', inPath({ organizationId }))),
  )
  const known = new Set((custom.data ?? []).map(({ id }) => id))
  return (
    <div className="stack">
      {may('members') ? <NewButton onClick={() => open('new')}>New role</NewButton> : null}
      <Rows
        of={{ ...roles, data: roles.data?.filter(({ id }) => !known.has(id)) }}
        empty={null}
        columns={[
          { title: 'Role', look: 'tight', show: ({ name }) => <span className="strong">{name}</span> },
          { title: 'May', show: ({ name }) => <span className="dim">{meaning[name.toLowerCase()] ?? ''}</span> },
        ]}
      />
      {(custom.data ?? []).map((role) => (
        <CustomRole key={role.id} organizationId={organizationId} role={role} onEdit={() => open(role)} />
      ))}
      {opened === null ? null : (
        <Editor
          organizationId={organizationId}
          role={opened === 'new' ? undefined : opened}
          onClose={() => open(null)}
        />
      )}
    </div>
  )
}
