/** A copy of an environment: its services, variables and stages, without their data. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { answerOf, client, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { RecordForm } from '../../ui/record-form.tsx'
import { tell } from '../../ui/toasts.tsx'
import { modeWords } from '../overview.tsx'

export const Clone = ({ environment, onClose }: { environment: Schemas['Environment']; onClose(): void }) => {
  const navigate = useNavigate()
  const organizationId = environment.organization.id
  const projects = useQuery(read.projects(organizationId))
  const clusters = useQuery(read.clusters(organizationId))
  const optionOf = ({ id, name }: { id: string; name: string }) => ({ value: id, label: name })
  if (projects.data === undefined || clusters.data === undefined) return null
  return (
    <RecordForm
      title={`Clone ${environment.name}`}
      button="Clone"
      changed={['environments', 'organization environments']}
      onClose={onClose}
      fields={[
        { at: '/name', label: 'Name', isRequired: true, initial: `${environment.name}-copy`.slice(0, 255) },
        {
          at: '/cluster_id',
          label: 'Cluster',
          kind: 'choice',
          options: clusters.data.map(optionOf),
          initial: environment.cluster_id,
        },
        {
          at: '/mode',
          label: 'Mode',
          kind: 'choice',
          options: Object.entries(modeWords).map(([value, label]) => ({ value, label })),
          initial: environment.mode,
        },
        {
          at: '/project_id',
          label: 'Project',
          kind: 'choice',
          options: projects.data.map(optionOf),
          initial: environment.project.id,
        },
        {
          at: '/apply_deployment_rule',
          label: 'Use the deployment rules of the project instead, where one fits the name',
          kind: 'switch',
          initial: false,
        },
      ]}
      save={async ({ apply_deployment_rule: isRuled, ...body }) => {
        // A rule decides the mode and the cluster.
        const { mode, cluster_id, ...rest } = body
        const { id, name } = await answerOf(
          client.POST('/environment/{environmentId}/clone', {
            params: { path: { environmentId: environment.id } },
            body: (isRuled === true
              ? { ...rest, apply_deployment_rule: true }
              : { ...rest, mode, cluster_id }) as never,
          }),
        )
        tell(`${name} was made. Nothing of it is deployed yet.`)
        await navigate({ to: '/e/$environmentId/$section', params: { environmentId: id, section: 'services' } })
      }}
    >
      <p className="dim small">
        Services, variables, secrets and stages are copied; databases and volumes begin empty.
      </p>
    </RecordForm>
  )
}
