/** The settings of a service, as a form made from the schema of the API. */

import { forms } from 'virtual:forms'
import { answerOf, client } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { SchemaForm } from '../../ui/form.tsx'
import { useMay } from '../../ui/place.ts'
import { ClusterNote } from './cluster-note.tsx'
import type { Shown } from './shown.ts'

type Fields = Record<string, unknown>

const pick = (from: Fields, names: readonly string[]): Fields =>
  Object.fromEntries(names.filter((name) => name in from).map((name) => [name, from[name]]))

const gitFields = ['url', 'branch', 'root_path', 'git_token_id']

const gitOf = (repository: unknown): Fields | null =>
  repository === null || repository === undefined ? null : pick(repository as Fields, gitFields)

const jobSource = ({ image, docker }: { image?: Fields; docker?: Fields }): Fields => ({
  ...(image === undefined ? {} : { image: pick(image, ['image_name', 'tag', 'registry_id']) }),
  ...(docker === undefined
    ? {}
    : {
        docker: {
          ...pick(docker, ['dockerfile_path', 'docker_target_build_stage']),
          git_repository: gitOf(docker.git_repository),
        },
      }),
})

const helmSource = ({ repository, git }: { repository?: Fields; git?: Fields }): Fields =>
  repository === undefined
    ? { git_repository: gitOf(git?.git_repository) }
    : {
        helm_repository: {
          ...pick(repository, ['chart_name', 'chart_version']),
          repository: (repository.repository as Fields | undefined)?.id,
        },
      }

/** The record, in the format that an edit accepts. */
const editableOf = ({ kind, raw }: Pick<read.Service, 'kind' | 'raw'>): Fields => {
  if (kind === 'job') return { ...raw, source: jobSource(raw.source as Fields) }
  if (kind === 'helm') return { ...raw, source: helmSource(raw.source as Fields) }
  if (kind === 'terraform') {
    const { git } = raw.terraform_files_source as { git: Fields }
    return { ...raw, terraform_files_source: { git_repository: gitOf(git.git_repository) } }
  }
  return raw.git_repository == null ? raw : { ...raw, git_repository: gitOf(raw.git_repository) }
}

const instances = [
  'cpu',
  'memory',
  'min_running_instances',
  'max_running_instances',
  'ports',
  'storage',
  'healthchecks',
]

const firstFields: Record<read.Kind, readonly string[]> = {
  application: ['name', 'description', 'git_repository', 'dockerfile_path', ...instances],
  container: ['name', 'description', 'image_name', 'tag', ...instances],
  database: ['name', 'description', 'version', 'accessibility', 'cpu', 'memory', 'storage'],
  job: ['name', 'description', 'source', 'schedule', 'cpu', 'memory', 'max_nb_restart', 'max_duration_seconds'],
  helm: ['name', 'description', 'source', 'values_override', 'arguments', 'timeout_sec'],
  terraform: [
    ...['name', 'description', 'terraform_files_source', 'terraform_variables_source', 'engine', 'provider_version'],
    ...['backend', 'job_resources', 'timeout_sec'],
  ],
  argocdApp: ['name', 'description', 'namespace', 'git_repository'],
}

const hidden = ['annotations_groups', 'labels_groups', 'registry_id', 'icon_uri', 'type', 'mode', 'blueprint_id']

export const Settings = ({ service }: Shown) => {
  const may = useMay()
  const { kind, id } = service
  return (
    <div className="stack wide">
      <ClusterNote service={service} />
      <SchemaForm
        schema={forms[kind]!}
        value={editableOf(service)}
        first={firstFields[kind]}
        hidden={hidden}
        isReadOnly={!may('write')}
        saved="Saved. The next deployment applies it."
        save={async (changes) => {
          const path = read.pathOf(kind, '/container/{containerId}')
          await answerOf(client.PUT(path, { params: { path: { containerId: id } }, body: changes as never }))
          await read.refresh('service', 'services', 'links', 'plan')
        }}
      />
    </div>
  )
}
