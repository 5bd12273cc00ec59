/** The limits of an organization, its usage, and the settings with which the operator changes the limits. */
import Type from 'typebox'
import { operation, organizationInPath, reading } from '../../api/operations/operation.ts'
import { Nullable, OneOf, Results, Text } from '../../api/operations/schema.ts'
import { countCertificates } from '../../certificates/rows.ts'
import { readEngines } from '../../limits/engine-room.ts'
import { type Limits, limitNames, limitSettings, usualLimits } from '../../limits/limits.ts'
import { readPorts } from '../../limits/port-room.ts'
import { readQueued } from '../../limits/queue-room.ts'
import { readRepositories } from '../../limits/repository-room.ts'
import { readServiceUse } from '../../limits/service-room.ts'

const publicNames: Readonly<Record<keyof Limits, string>> = {
  services: 'SERVICES',
  memoryMb: 'MEMORY_MB',
  cpuMillicores: 'CPU_MILLICORES',
  volumes: 'VOLUMES',
  volumeGb: 'VOLUME_GB',
  queued: 'QUEUED_DEPLOYMENTS',
  diskGb: 'IMAGES_GB',
  streams: 'STREAMS',
  streamsPerToken: 'STREAMS_PER_TOKEN',
  engines: 'ENGINES',
  certificates: 'CERTIFICATES',
  repositoryMb: 'REPOSITORY_MB',
  repositoriesMb: 'REPOSITORIES_MB',
  mirrorsMb: 'GIT_MIRRORS_MB',
  previews: 'PREVIEWS_PER_PROJECT',
  ports: 'PORTS',
}

const Figure = (description: string) => Nullable(Type.Number({ minimum: 0 }), { description })

const Limit = Type.Object(
  {
    name: OneOf(Object.values(publicNames)),
    limit: Figure('Null if there is no limit.'),
    used: Figure('Null if not counted. Resources of charts in their clusters are never counted.'),
    setting: Text(255, { description: "The operator's setting; applies to all organizations." }),
  },
  { title: 'OrganizationLimit' },
)

export const organizationLimits = operation({
  id: 'listOrganizationLimits',
  ...reading,
  path: '/organization/{organizationId}/limits',
  tag: 'Organization Main Calls',
  summary: 'List the limits of an organization and its current usage',
  area: 'resources',
  owner: organizationInPath,
  answer: Results(Limit),
  async run({ db, parts, node }) {
    const { limits = usualLimits } = parts.settings
    const [services, queued, diskGb, engines, certificates, repositoriesMb, mirrorsMb, ports] = await Promise.all([
      readServiceUse(db, node.id),
      readQueued(db, node.id),
      parts.disk?.usedGb(node.id) ?? null,
      readEngines(db, node.id),
      countCertificates(db, node.id),
      readRepositories(db, node.id),
      parts.repositories?.usedMb(node.id) ?? null,
      readPorts(db, node.id),
    ])
    const used: Partial<Record<keyof Limits, number | null>> = {
      ...services,
      ...{ queued, diskGb, engines, certificates, repositoriesMb, mirrorsMb, ports },
    }
    const results = limitNames.map((limit) => ({
      name: publicNames[limit],
      limit: limits[limit] === 0 ? null : limits[limit],
      used: used[limit] ?? null,
      setting: limitSettings[limit],
    }))
    return { results }
  },
})
