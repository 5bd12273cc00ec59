/** A database. */
import { NumberInput, Select, Switch } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { client, inPath, resultsOf } from '../../api/client.ts'
import { databaseWord } from '../../api/queries.ts'
import { Answer } from '../../ui/notices.tsx'
import { type FormProps, NameField } from './fields.tsx'

export const DatabaseForm = ({ body, change, problem, environmentId }: FormProps) => {
  const configurations = useQuery({
    queryKey: ['database versions', environmentId],
    queryFn: () =>
      resultsOf(client.GET('/environment/{environmentId}/databaseConfiguration', inPath({ environmentId }))),
    staleTime: Number.POSITIVE_INFINITY,
  })
  const versionsOf = (type: unknown): string[] =>
    (configurations.data?.find(({ database_type }) => database_type === type)?.version ?? [])
      .filter(({ supported_mode: mode }) => mode === 'CONTAINER')
      .map(({ name }) => name)
  return (
    <Answer of={configurations}>
      {(all) => (
        <>
          <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
            <Select
              label="Kind"
              required
              data={all.map(({ database_type: type }) => ({ value: type, label: databaseWord(type) }))}
              value={String(body.type ?? '') || null}
              onChange={(type) =>
                change({ type, version: versionsOf(type)[0], name: body.name || String(type).toLowerCase() })
              }
              error={problem('/type')}
            />
            <Select
              label="Version"
              required
              data={versionsOf(body.type)}
              value={String(body.version ?? '') || null}
              onChange={(version) => change({ version })}
              error={problem('/version')}
            />
          </div>
          <NameField {...{ body, change, problem }} />
          <NumberInput
            label="Storage (GB)"
            min={1}
            hideControls
            value={typeof body.storage === 'number' ? body.storage : ''}
            onChange={(value) => change({ storage: value === '' ? undefined : value })}
            error={problem('/storage')}
          />
          <Switch
            label="Reachable from outside"
            checked={body.accessibility === 'PUBLIC'}
            onChange={(event) => change({ accessibility: event.currentTarget.checked ? 'PUBLIC' : 'PRIVATE' })}
          />
        </>
      )}
    </Answer>
  )
}
