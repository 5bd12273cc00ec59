/** What a service is, in the form in which it is edited: some records show their source otherwise than they take it. */
import type { Service } from '../../api/queries.ts'

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

/** The record, with what an edit takes in the place of what the record shows. */
export const editableOf = ({ kind, raw }: Pick<Service, 'kind' | 'raw'>): Fields => {
  if (kind === 'job') return { ...raw, source: jobSource(raw.source as Fields) }
  if (kind === 'helm') return { ...raw, source: helmSource(raw.source as Fields) }
  if (kind === 'terraform') {
    const { git } = raw.terraform_files_source as { git: Fields }
    return { ...raw, terraform_files_source: { git_repository: gitOf(git.git_repository) } }
  }
  return raw.git_repository == null ? raw : { ...raw, git_repository: gitOf(raw.git_repository) }
}
