/** The chart of a helm service: its source, and the values that override its defaults. */
import Type from 'typebox'
import type { Spec } from '../../api/operations/resource.ts'
import { List, Maybe, Nullable, Ref, Text, Uuid } from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import {
  completeGitRepository,
  GitRepository,
  GitRepositoryRequest,
  type GitRepositorySpec,
  insidePath,
  viewGitRepository,
} from '../service/git-source.ts'
import type { GitFacts } from '../service/service.ts'

const ChartRequest = () =>
  Type.Object({
    repository: Maybe(Nullable(Ref('helm_repository'))),
    chart_name: Maybe(Text(255, { minLength: 1 })),
    chart_version: Maybe(Text(128, { minLength: 1 })),
  })

/** Requests and responses name the chart in different forms: existing clients expect that. Requests may have either. */
export const SourceRequest = () =>
  Type.Object(
    {
      git_repository: Maybe(Nullable(GitRepositoryRequest())),
      helm_repository: Maybe(Nullable(ChartRequest())),
    },
    { 'x-as-read': { git_repository: ['git', 'git_repository'], helm_repository: ['repository'] } },
  )

export const Source = () =>
  Type.Union([
    Type.Object({ git: Type.Object({ git_repository: GitRepository() }) }),
    Type.Object({
      repository: Type.Object({
        chart_name: Text(),
        chart_version: Text(),
        repository: Type.Object({ id: Uuid(), name: Text(), url: Text(2048) }),
      }),
    }),
  ])

export const gitPath = ['source', 'git_repository']

/** SQL for the chart repository of a row `n`; null if it has none. */
export const repositoryOfChartSql = `(select jsonb_build_object('id', r.id, 'name', r.name,
    'url', coalesce(r.spec ->> 'url', ''))
  from node r where r.id = (n.spec #>> '{source,helm_repository,repository}')::uuid)`

type Chart = {
  repository: string
  chart_name: string
  chart_version: string
}

export type SourceSpec = { git_repository: GitRepositorySpec } | { helm_repository: Chart }

const requireAll = (chart: Spec): Chart => {
  for (const field of ['repository', 'chart_name', 'chart_version'])
    if (typeof chart[field] !== 'string') throw invalidField(`/source/helm_repository/${field}`, 'is required')
  return chart as Chart & Spec
}

export const completeSource = (sent: Spec, before: Spec | undefined): SourceSpec => {
  const { git_repository: git = null, helm_repository: chart = null } = sent
  if ((git === null) === (chart === null))
    throw invalidField('/source', 'must have exactly one of `git_repository` and `helm_repository`')
  if (chart !== null) return { helm_repository: requireAll(chart as Spec) }
  const known = before?.git_repository as GitRepositorySpec | undefined
  return { git_repository: completeGitRepository(git, known, '/source/git_repository') }
}

export const viewSource = (source: SourceSpec, repository: unknown, { commit, tokenName }: GitFacts): Spec => {
  if ('git_repository' in source)
    return { git: { git_repository: viewGitRepository(source.git_repository, commit, tokenName) } }
  const { repository: id, ...chart } = source.helm_repository
  return { repository: { ...chart, repository: repository ?? { id, name: '', url: '' } } }
}

const Pairs = () => List(List(Text(65_536), 2, { minItems: 2 }), 500, { default: [] })
const Raw = () => Type.Object({ name: Text(255, { minLength: 1 }), content: Text(1_000_000) })
const paths = () => List(Text(1024, { minLength: 1 }), 50, { minItems: 1 })

export const ValuesRequest = () =>
  Type.Object(
    {
      set: Maybe(Pairs()),
      set_string: Maybe(Pairs()),
      set_json: Maybe(Pairs()),
      file: Maybe(
        Nullable(
          Type.Object({
            git: Maybe(Nullable(Type.Object({ git_repository: GitRepositoryRequest(), paths: paths() }))),
            raw: Maybe(Nullable(Type.Object({ values: Maybe(List(Raw(), 50, { default: [] })) }))),
          }),
        ),
      ),
    },
    { default: {} },
  )

export const Values = () =>
  Type.Object({
    set: Pairs(),
    set_string: Pairs(),
    set_json: Pairs(),
    file: Nullable(
      Type.Object({
        git: Nullable(Type.Object({ git_repository: GitRepository(), paths: paths() })),
        raw: Nullable(Type.Object({ values: List(Raw(), 50) })),
      }),
    ),
  })

/** SQL for the name of the token with which the files of values are read. */
export const valuesTokenSql = `(select t.name from node t
  where t.id = (n.spec #>> '{values_override,file,git,git_repository,git_token_id}')::uuid)`

interface ValuesFile {
  git: { git_repository: GitRepositorySpec; paths: string[] } | null
  raw: { values: { name: string; content: string }[] } | null
}

export interface ValuesSpec {
  set: unknown[]
  set_string: unknown[]
  set_json: unknown[]
  file: ValuesFile | null
}

const completeFile = (sent: Partial<ValuesFile>): ValuesFile => {
  const field = '/values_override/file/git'
  const git = sent.git ?? null
  return {
    git: git && {
      git_repository: completeGitRepository(git.git_repository, undefined, `${field}/git_repository`),
      paths: git.paths.map((path, index) => insidePath(`${field}/paths/${index}`, path)),
    },
    raw: sent.raw ? { values: sent.raw.values ?? [] } : null,
  }
}

export const completeValues = (sent: Partial<ValuesSpec> = {}): ValuesSpec => {
  const { set = [], set_string = [], set_json = [], file = null } = sent
  return { set, set_string, set_json, file: file === null ? null : completeFile(file) }
}

export const viewValues = (values: ValuesSpec, tokenName: string | null): Spec => {
  const git = values.file?.git ?? null
  if (git === null) return { ...values }
  const repository = viewGitRepository(git.git_repository, null, tokenName)
  return { ...values, file: { ...values.file, git: { ...git, git_repository: repository } } }
}
