/** The settings of a service, as a form made from the schema of the API. */
import { forms } from 'virtual:forms'
import { useQueryClient } from '@tanstack/react-query'
import { answerOf, client } from '../../api/client.ts'
import { SchemaForm } from '../../ui/form.tsx'
import { useMay } from '../../ui/place.ts'
import type { Shown } from './shown.ts'

const firstFields: Record<string, readonly string[]> = {
  application: [
    'name',
    'description',
    'git_repository',
    'dockerfile_path',
    'cpu',
    'memory',
    'min_running_instances',
    'max_running_instances',
    'ports',
    'storage',
    'healthchecks',
  ],
  container: [
    'name',
    'description',
    'image_name',
    'tag',
    'cpu',
    'memory',
    'min_running_instances',
    'max_running_instances',
    'ports',
    'storage',
    'healthchecks',
  ],
  database: ['name', 'description', 'version', 'accessibility', 'cpu', 'memory', 'storage'],
}

export const Settings = ({ service }: Shown) => {
  const may = useMay()
  const queries = useQueryClient()
  const { kind, id, raw } = service
  return (
    <SchemaForm
      schema={forms[kind]!}
      value={raw}
      first={firstFields[kind] ?? []}
      hidden={['annotations_groups', 'labels_groups', 'registry_id', 'icon_uri', 'type', 'mode']}
      isReadOnly={!may('write')}
      saved="Saved. The next deployment applies it."
      save={async (changes) => {
        const path = `/${kind}/{containerId}` as '/container/{containerId}'
        await answerOf(client.PUT(path, { params: { path: { containerId: id } }, body: changes as never }))
        await Promise.all(
          ['service', 'services', 'links'].map((name) => queries.invalidateQueries({ queryKey: [name] })),
        )
      }}
    />
  )
}
