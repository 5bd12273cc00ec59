/** The facts about a service, in a few lines. */
import { databaseWord, type Service } from '../../api/queries.ts'

type Fields = Record<string, unknown>
type Facts = [name: string, value: string][]

interface Git {
  url: string
  branch: string
  root_path?: string
  deployed_commit_id?: string
}

const gitFacts = (git: Git | null | undefined): Facts =>
  git == null
    ? []
    : [
        ['Repository', git.url],
        ['Branch', git.branch],
        ...(git.root_path === undefined || git.root_path === '/' ? [] : ([['Folder', git.root_path]] as Facts)),
        ...(git.deployed_commit_id ? ([['Commit', git.deployed_commit_id.slice(0, 10)]] as Facts) : []),
      ]

const imageFacts = ({ image_name: name, tag, registry }: Fields): Facts => [
  ['Image', `${String(name)}:${String(tag)}`],
  ...(registry === undefined ? [] : ([['Registry', String((registry as Fields).name)]] as Facts)),
]

const none = 'none'

interface Command {
  entrypoint?: string | null
  arguments?: string[]
}

const ownCommand = 'the command of the image'

const commandOf = ({ entrypoint, arguments: words = [] }: Command): string =>
  [entrypoint ?? '', ...words].join(' ').trim() || ownCommand

const moments = { on_start: 'On deployment', on_stop: 'On stop', on_delete: 'On deletion' }

const scheduleFacts = (schedule: Record<string, (Command & Fields) | null | undefined>): Facts => {
  const cron = schedule.cronjob
  if (cron != null)
    return [
      ['Schedule', `${String(cron.scheduled_at)} (${String(cron.timezone)})`],
      ['Command', commandOf(cron)],
    ]
  return Object.entries(moments).flatMap(([name, word]): Facts => {
    const command = schedule[name]
    return command == null ? [] : [[word, commandOf(command)]]
  })
}

const jobFacts = (raw: Fields): Facts => {
  const { image, docker } = raw.source as { image?: Fields; docker?: Fields }
  return [
    ...(image === undefined ? [] : imageFacts(image)),
    ...gitFacts(docker?.git_repository as Git | undefined),
    ...scheduleFacts(raw.schedule as Parameters<typeof scheduleFacts>[0]),
  ]
}

const helmFacts = (raw: Fields): Facts => {
  const { repository, git } = raw.source as { repository?: Fields; git?: Fields }
  const from = repository?.repository as Fields | undefined
  return repository === undefined
    ? gitFacts(git?.git_repository as Git | undefined)
    : [
        ['Chart', String(repository.chart_name)],
        ['Version', String(repository.chart_version)],
        ['Repository', String(from?.url ?? from?.name ?? '–')],
      ]
}

const engineNames: Record<string, string> = { TERRAFORM: 'Terraform', OPEN_TOFU: 'OpenTofu' }

const terraformFacts = (raw: Fields): Facts => {
  const { git } = raw.terraform_files_source as { git: Fields }
  const { explicit_version: version } = raw.provider_version as Fields
  const { kubernetes } = raw.backend as Fields
  const { tf_vars: variables = [] } = raw.terraform_variables_source as { tf_vars?: unknown[] }
  return [
    ...gitFacts(git.git_repository as Git),
    ['Tool', `${engineNames[String(raw.engine)] ?? String(raw.engine)} ${String(version)}`],
    ['State', kubernetes == null ? 'in the backend of the module' : 'kept by this server, encrypted'],
    ['Variables', String(variables.length)],
  ]
}

const argoFacts = (raw: Fields): Facts => [
  ['Namespace', String(raw.namespace)],
  ...gitFacts(raw.git_repository as Git | null),
  ['Synchronized', String(raw.last_synced_at ?? '')],
  ['Revision', raw.manifest_revision == null ? none : String(raw.manifest_revision)],
]

const facts: Record<Service['kind'], (raw: Fields) => Facts> = {
  application: (raw) => [
    ...gitFacts(raw.git_repository as Git),
    ['Dockerfile', String(raw.dockerfile_path ?? 'Dockerfile')],
  ],
  container: imageFacts,
  database: ({ type, version, storage, accessibility }) => [
    ['Database', `${databaseWord(type)} ${String(version)}`],
    ['Storage', `${String(storage)} GB`],
    ['Reachable', accessibility === 'PUBLIC' ? 'from outside' : 'in its environment'],
  ],
  job: jobFacts,
  helm: helmFacts,
  terraform: terraformFacts,
  argocdApp: argoFacts,
}

/** A word, not a value to be typed or compared exactly. */
const prose = new Set(['Database', 'Storage', 'Reachable', 'Registry', 'State', 'Synchronized', 'Tool', 'Variables'])

export const isProse = (name: string, value: string): boolean =>
  prose.has(name) || value === ownCommand || value === none

export const factsOf = ({ kind, raw }: Service): Facts => facts[kind](raw)
