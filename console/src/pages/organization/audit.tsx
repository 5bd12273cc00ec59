/** What was done, by whom. */
import { useQuery } from '@tanstack/react-query'
import { answerOf, client } from '../../api/client.ts'
import { Empty } from '../../ui/notices.tsx'
import { Time } from '../../ui/time.tsx'
import { type Props, Rows } from './list.tsx'

export const Audit = ({ organizationId }: Props) => {
  const events = useQuery({
    queryKey: ['audit', organizationId],
    queryFn: async () =>
      (
        await answerOf(
          client.GET('/organization/{organizationId}/events', {
            params: { path: { organizationId }, query: { pageSize: 60 } },
          }),
        )
      ).events,
  })
  return (
    <Rows
      of={events}
      empty={<Empty title="Nothing was done yet" />}
      columns={[
        { title: 'When', isTight: true, show: ({ timestamp }) => <Time at={timestamp} /> },
        {
          title: 'What',
          show: ({ event_type: type, target_type: target, sub_target_type: sub, target_name: name }) => (
            <>
              {`${type} ${sub ?? target}`.toLowerCase().replaceAll('_', ' ')} <span className="strong">{name}</span>
            </>
          ),
        },
        {
          title: 'Where',
          isOptional: true,
          show: ({ project_name: project, environment_name: environment }) => (
            <span className="dim">{[project, environment].filter(Boolean).join(' / ')}</span>
          ),
        },
        {
          title: 'By',
          isOptional: true,
          show: ({ triggered_by: by, origin }) => <span className="dim">{`${by}, ${origin.toLowerCase()}`}</span>,
        },
      ]}
    />
  )
}
