/** The outputs of a job or a module for other services: built-in variables of the environment. */
import { useQuery } from '@tanstack/react-query'
import { answerOf, client } from '../../api/client.ts'
import type * as read from '../../api/queries.ts'
import { Answer } from '../../ui/notices.tsx'
import { ListTable } from '../../ui/rows.tsx'

const prefixOf = ({ kind, id }: read.Service): string =>
  `SLIPWAY_OUTPUT_${kind.toUpperCase()}_Z${id.slice(0, 8).toUpperCase()}_`

export const Outputs = ({ service }: { service: read.Service }) => {
  const { environmentId } = service
  const prefix = prefixOf(service)
  const outputs = useQuery({
    queryKey: ['history', environmentId, 'outputs', service.id],
    queryFn: async () => {
      const query = { parent_id: environmentId, scope: 'ENVIRONMENT' } as never
      const { results } = await answerOf(client.GET('/variable', { params: { query } }))
      return results.filter(({ key }) => key.startsWith(prefix))
    },
  })
  return (
    <section className="card">
      <header>
        <h2>Outputs</h2>
      </header>
      <Answer of={outputs}>
        {(rows) =>
          rows.length === 0 ? (
            <p className="dim body">None yet. What a run writes as outputs becomes variables of the environment.</p>
          ) : (
            <ListTable label="Outputs" heads={{ Output: '', Value: '', Variable: 'optional' }}>
              {rows.map(({ id, key, value, is_secret: isSecret }) => (
                <tr key={id}>
                  <td className="mono wrap">{key.slice(prefix.length)}</td>
                  <td className="mono wrap">{isSecret ? <span className="dim">secret</span> : (value ?? '')}</td>
                  <td className="mono wrap optional dim">{key}</td>
                </tr>
              ))}
            </ListTable>
          )
        }
      </Answer>
    </section>
  )
}
