/** Where the services of an organization run. */
import { answerOf, client } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { StateMark } from '../../ui/state.tsx'
import { type Props, pathOf, Rows, useOrganizationList } from './list.tsx'

export const Clusters = ({ organizationId }: Props) => {
  const clusters = useOrganizationList('clusters', organizationId, () =>
    answerOf(client.GET('/organization/{organizationId}/cluster', pathOf(organizationId))),
  )
  return (
    <Rows
      of={clusters}
      empty={<Empty title="No clusters" />}
      columns={[
        {
          title: 'Cluster',
          show: ({ name, description }) => (
            <>
              <span className="strong">{name}</span>
              <p className="dim small">{description}</p>
            </>
          ),
        },
        { title: 'State', isTight: true, show: ({ status }) => <StateMark state={status} /> },
        {
          title: 'CPU',
          isTight: true,
          isOptional: true,
          show: ({ cpu }) => (cpu == null ? '–' : `${cpu / 1000} cores`),
        },
        {
          title: 'Memory',
          isTight: true,
          isOptional: true,
          show: ({ memory }) => (memory == null ? '–' : `${Math.round(memory / 102.4) / 10} GB`),
        },
        { title: 'Version', isTight: true, isOptional: true, show: ({ version }) => version ?? '–' },
      ]}
    />
  )
}
