/** Overviews of an organization or a project: all environments, all services, and their counts. */
import Type from 'typebox'
import { modes } from '../../api/auth/permissions.ts'
import { nodeInPath, type Operation, operation, organizationInPath } from '../../api/operations/operation.ts'
import {
  Flag,
  Maybe,
  Nullable,
  OneOf,
  Reference,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { readEnvironment } from '../../environments/status.ts'
import { EnvironmentStatus } from '../../facets/status-schema.ts'
import { kindsWith, serviceTypes } from '../../kinds.ts'
import { timestampSql } from '../../store/tree.ts'

const read = { method: 'GET' as const, scope: 'Read' as const, status: 200 as const }
const inOrganization = { ...read, area: 'resources' as const, owner: organizationInPath }
const inProject = { ...read, area: 'projects' as const, tag: 'Environments', owner: nodeInPath('project', 'projectId') }

const LightEnvironment = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  name: Text(),
  organization: Reference(),
  project: Reference(),
  mode: OneOf(modes),
})

const environments = operation({
  ...inOrganization,
  id: 'listEnvironmentsByOrganizationId',
  path: '/organization/{organizationId}/environments',
  tag: 'Organization Main Calls',
  summary: 'List all environments of an organization',
  answer: Results(LightEnvironment),
  async run({ db, node }) {
    const results = await db.query<Type.Static<typeof LightEnvironment>>(
      `select n.id, ${timestampSql('n.created_at')} as created_at, ${timestampSql('n.updated_at')} as updated_at, n.name,
         json_build_object('id', n.organization_id) as organization, json_build_object('id', n.parent_id) as project,
         n.spec ->> 'mode' as mode
       from node n where n.organization_id = $1 and n.kind = 'environment' order by n.created_at, n.id`,
      [node.id],
    )
    return { results }
  },
})

const LightService = Type.Object({
  id: Uuid(),
  name: Text(),
  description: Text(2048),
  icon_uri: Text(2048),
  service_type: OneOf(serviceTypes),
  project_id: Uuid(),
  project_name: Text(),
  environment_id: Uuid(),
  environment_name: Text(),
  cluster_id: Uuid(),
  job_type: Maybe(OneOf(['CRON', 'LIFECYCLE'])),
})

const services = operation({
  ...inOrganization,
  id: 'listServicesByOrganizationId',
  path: '/organization/{organizationId}/services',
  tag: 'Organization Main Calls',
  summary: 'List all services of an organization, or those of one of its projects, environments or clusters',
  query: Type.Object({
    projectId: Maybe(Nullable(Uuid())),
    environmentId: Maybe(Nullable(Uuid())),
    clusterId: Maybe(Nullable(Uuid())),
    project_id: Maybe(Nullable(Uuid())),
    environment_id: Maybe(Nullable(Uuid())),
    cluster_id: Maybe(Nullable(Uuid())),
  }),
  answer: Results(LightService),
  async run({ db, node, query }) {
    const rows = await db.query<Omit<Type.Static<typeof LightService>, 'job_type'> & { job_type: string | null }>(
      `select n.id, n.name, coalesce(n.spec ->> 'description', '') as description,
         coalesce(n.spec ->> 'icon_uri', 'app://slipway/' || n.kind) as icon_uri, upper(n.kind) as service_type,
         p.id as project_id, p.name as project_name, e.id as environment_id, e.name as environment_name,
         (e.spec ->> 'cluster_id')::uuid as cluster_id, upper(n.spec ->> 'job_type') as job_type
       from node n join node e on e.id = n.parent_id join node p on p.id = e.parent_id
       where n.organization_id = $1 and n.name_scope = 'service'
         and e.organization_id = $1 and e.kind = 'environment' and p.organization_id = $1 and p.kind = 'project'
         and ($2::uuid is null or p.id = $2) and ($3::uuid is null or e.id = $3)
         and ($4::text is null or e.spec ->> 'cluster_id' = $4)
       order by n.created_at, n.id`,
      [
        node.id,
        query.projectId ?? query.project_id ?? null,
        query.environmentId ?? query.environment_id ?? null,
        (query.clusterId ?? query.cluster_id)?.toLowerCase() ?? null,
      ],
    )
    return { results: rows.map(({ job_type, ...row }) => (job_type === null ? row : { ...row, job_type })) }
  },
})

/** `number` is the older name, which some generated clients require. */
const EnvironmentStats = Type.Object({ id: Uuid(), service_total_number: Whole(0), number: Whole(0) })
const ProjectStats = Type.Object({ ...EnvironmentStats.properties, environment_total_number: Whole(0) })

const environmentStats = operation({
  ...inProject,
  id: 'getProjectEnvironmentServiceNumber',
  path: '/project/{projectId}/environment/stats',
  summary: 'Count the services in each environment of a project',
  answer: Results(EnvironmentStats),
  async run({ db, node }) {
    const results = await db.query<{ id: string; service_total_number: number }>(
      `select n.id, (select count(*)::int from service_state s where s.environment_id = n.id) as service_total_number
       from node n where n.parent_id = $1 and n.kind = 'environment' order by n.created_at, n.id`,
      [node.id],
    )
    return { results: results.map((row) => ({ ...row, number: row.service_total_number })) }
  },
})

const projectStats = operation({
  ...inOrganization,
  id: 'getOrganizationProjectStats',
  path: '/organization/{organizationId}/project/stats',
  tag: 'Projects',
  summary: 'Count the environments and services of each project of an organization',
  answer: Results(ProjectStats),
  async run({ db, node }) {
    const results = await db.query<{ id: string; service_total_number: number; environment_total_number: number }>(
      `select n.id, count(distinct e.id)::int as environment_total_number, count(s.service_id)::int as service_total_number
       from node n left join node e on e.parent_id = n.id and e.kind = 'environment'
         left join service_state s on s.environment_id = e.id
       where n.organization_id = $1 and n.kind = 'project' group by n.id order by n.created_at, n.id`,
      [node.id],
    )
    return { results: results.map((row) => ({ ...row, number: row.service_total_number })) }
  },
})

const Overview = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  name: Text(),
  mode: OneOf(modes),
  cluster: Type.Object({ id: Uuid(), name: Text(), cloud_provider: Text(), is_demo: Flag() }),
  services_overview: Type.Object({ service_count: Whole(0), managed_by: OneOf(['QOVERY', 'ARGOCD', 'MIXED']) }),
  deployment_status: Nullable(EnvironmentStatus),
})

type OverviewRow = Omit<Type.Static<typeof Overview>, 'services_overview' | 'deployment_status'>

/** For services deployed by this server itself, the public API uses its vendor's name. */
const managedBy = (all: number, discovered: number): string => {
  if (discovered === 0) return 'QOVERY'
  return discovered === all ? 'ARGOCD' : 'MIXED'
}

const overview = operation({
  ...inProject,
  id: 'getProjectEnvironmentsOverview',
  path: '/project/{projectId}/environment/overview',
  summary: 'List the environments of a project with a summary of their cluster, services and status',
  answer: Results(Overview),
  async run({ db, node, parts }) {
    const rows = await db.query<OverviewRow & { service_count: number; discovered: number }>(
      `select n.id, ${timestampSql('n.created_at')} as created_at, ${timestampSql('n.updated_at')} as updated_at, n.name,
         n.spec ->> 'mode' as mode, json_build_object('id', c.id, 'name', c.name,
           'cloud_provider', c.spec -> 'cloud_provider', 'is_demo', coalesce((c.spec ->> 'is_demo')::boolean, false)) as cluster,
         count(s.service_id)::int as service_count,
         count(s.service_id) filter (where s.kind = any('{${kindsWith(({ discovered }) => discovered)}}'))::int as discovered
       from node n join node c on c.id = (n.spec ->> 'cluster_id')::uuid
         left join service_state s on s.environment_id = n.id
       where n.parent_id = $1 and n.kind = 'environment' group by n.id, c.id order by n.created_at, n.id`,
      [node.id],
    )
    const results: Type.Static<typeof Overview>[] = []
    for (const { service_count, discovered, ...row } of rows) {
      const { environment } = await readEnvironment(parts.deployments, db, row.id)
      const services_overview = { service_count, managed_by: managedBy(service_count, discovered) }
      results.push({ ...row, services_overview, deployment_status: environment })
    }
    return { results }
  },
})

export const overviewOperations: Operation[] = [environments, services, environmentStats, projectStats, overview]
