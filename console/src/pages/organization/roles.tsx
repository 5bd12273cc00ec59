/** What each role allows. */
import { answerOf, client } from '../../api/client.ts'
import { type Props, pathOf, Rows, useOrganizationList } from './list.tsx'

export const useRoles = (organizationId: string) =>
  useOrganizationList('roles', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/availableRole', pathOf(organizationId))),
  )

const levelWords: Record<string, string> = {
  NO_ACCESS: 'no access',
  VIEWER: 'views',
  DEPLOYER: 'deploys',
  MANAGER: 'manages',
}

export const Roles = ({ organizationId }: Props) => {
  const roles = useRoles(organizationId)
  const custom = useOrganizationList('custom roles', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/customRole', pathOf(organizationId))),
  )
  const known = new Set((custom.data ?? []).map(({ id }) => id))
  const builtIn = { ...roles, data: roles.data?.filter(({ id }) => !known.has(id)) } as typeof roles
  const meaning: Record<string, string> = {
    owner: 'Everything, and who owns the organization',
    admin: 'Everything but who owns the organization',
    devops: 'Projects, clusters, webhooks and tokens',
    viewer: 'Reads everything but secrets',
    billing: 'Reads settings and clusters',
  }
  return (
    <div className="stack">
      <Rows
        of={builtIn}
        empty={null}
        columns={[
          { title: 'Role', isTight: true, show: ({ name }) => <span className="strong">{name}</span> },
          { title: 'May', show: ({ name }) => <span className="dim">{meaning[name.toLowerCase()] ?? ''}</span> },
        ]}
      />
      {(custom.data ?? []).map(({ id, name, description, project_permissions: projects }) => (
        <section key={id} className="card">
          <header>
            <h2 className="wrap">{name}</h2>
            <span className="dim wrap">{description}</span>
          </header>
          <div className="scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Project</th>
                  {['Development', 'Preview', 'Staging', 'Production'].map((mode) => (
                    <th key={mode}>{mode}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {projects.map(({ project_id, project_name, is_admin, permissions }) => (
                  <tr key={project_id}>
                    <td className="wrap">{project_name}</td>
                    {['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((mode) => (
                      <td key={mode} className="dim">
                        {is_admin === true
                          ? 'administers'
                          : levelWords[
                              permissions?.find(({ environment_type }) => environment_type === mode)?.permission ??
                                'NO_ACCESS'
                            ]}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      ))}
    </div>
  )
}
