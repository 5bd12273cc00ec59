/** How much of its limits an organization uses. */
import { answerOf, client, inPath } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { Rows } from '../../ui/rows.tsx'
import { type Props, useOrganizationList } from './list.ts'

const words: Record<string, string> = {
  SERVICES: 'Services',
  MEMORY_MB: 'Memory of all services (GB)',
  CPU_MILLICORES: 'CPU of all services (cores)',
  VOLUMES: 'Volumes',
  VOLUME_GB: 'Size of all volumes (GB)',
  QUEUED_DEPLOYMENTS: 'Queued deployments',
  IMAGES_GB: 'Images (GB)',
  STREAMS: 'Open streams',
  STREAMS_PER_TOKEN: 'Open streams per token',
  ENGINES: 'Registered clusters',
  CERTIFICATES: 'Certificates',
  REPOSITORY_MB: 'Size of a repository on this server (MB)',
  REPOSITORIES_MB: 'Size of all repositories on this server (MB)',
  PREVIEWS_PER_PROJECT: 'Previews per project',
}

/** The number of counted units in one shown unit. */
const units: Record<string, number> = { MEMORY_MB: 1024, CPU_MILLICORES: 1000 }

const numbers = new Intl.NumberFormat()
const shown = (value: number | null, name: string): string =>
  value === null ? '–' : numbers.format(Math.round((value / (units[name] ?? 1)) * 100) / 100)

const Bar = ({ used, limit, label }: { used: number | null; limit: number | null; label: string }) => {
  if (used === null || limit === null || limit === 0) return null
  const share = Math.min(1, used / limit)
  return <meter className="meter" aria-label={label} value={share} high={0.8} optimum={0} />
}

export const Usage = ({ organizationId }: Props) => {
  const limits = useOrganizationList('limits', organizationId, async () => {
    const { results } = await answerOf(client.GET('/organization/{organizationId}/limits', inPath({ organizationId })))
    return { results: results.map((each) => ({ ...each, id: each.name })) }
  })
  return (
    <div className="stack">
      <p className="dim">
        The operator of this server sets the limits. What would exceed one is refused, and says which.
      </p>
      <Rows
        of={limits}
        empty={<Empty title="Nothing is limited" />}
        columns={[
          {
            title: 'What',
            show: ({ name, setting }) => (
              <>
                <span className="strong">{words[name] ?? name}</span>
                <p className="dim small wrap">{setting}</p>
              </>
            ),
          },
          { title: 'Used', look: 'tight', show: ({ name, used }) => shown(used, name) },
          {
            title: 'Limit',
            look: 'tight',
            show: ({ name, limit }) => (limit === null ? 'no limit' : shown(limit, name)),
          },
          {
            title: 'Share',
            look: 'optional',
            show: ({ name, used, limit }) => <Bar used={used} limit={limit} label={words[name] ?? name} />,
          },
        ]}
      />
    </div>
  )
}
