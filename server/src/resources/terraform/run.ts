/**
 * How a terraform service runs: how its image is built, what each action runs in it, and the files it gets. The program
 * in the image is `slipway-module` (builds/tool-script.sh). Pure.
 */

import {
  type DeployableKind,
  mainTask,
  type Source,
  type TaskEvent,
  type TaskSpec,
  type WorkloadSpec,
} from '../../deployments/deployments.ts'
import { machineLabelsIn } from '../../facets/settings/placement.ts'
import { buildLimitsIn, chosenGraceMs, toolImageIn } from '../../facets/settings/settings.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { type GitRepositorySpec, plainPath, rootOf } from '../service/git-source.ts'

export type TerraformSpec = {
  terraform_files_source: { git_repository: GitRepositorySpec }
  terraform_variables_source: {
    tf_var_file_paths?: string[]
    tf_vars?: { key: string; value?: string; secret: boolean }[]
  }
  backend: { kubernetes?: object; user_provided?: object; blueprint?: object }
  engine: 'TERRAFORM' | 'OPEN_TOFU'
  provider_version: { explicit_version: string }
  timeout_sec: number
  job_resources: { cpu_milli: number; ram_mib: number }
  action_extra_arguments?: Record<string, string[]>
  dockerfile_fragment?: { type: 'inline'; content: string } | { type: 'file'; path: string } | null
}

const toolOf = ({ engine }: TerraformSpec): string => (engine === 'OPEN_TOFU' ? 'tofu' : 'terraform')

const longestSeconds = 86_400

const fragmentOf = ({ dockerfile_fragment: fragment }: TerraformSpec) => {
  if (fragment === null || fragment === undefined) return null
  return fragment.type === 'inline' ? { text: fragment.content } : { path: plainPath(fragment.path) }
}

const source = (kept: TerraformSpec): Source => {
  const { git_repository: git } = kept.terraform_files_source
  const limits = buildLimitsIn(kept)
  return {
    from: 'git',
    git: { url: git.url, branch: git.branch, gitTokenId: git.git_token_id },
    rootPath: rootOf(git),
    dockerfilePath: '',
    targetStage: null,
    tool: {
      name: toolOf(kept),
      ...toolImageIn(kept, kept.provider_version.explicit_version),
      fragment: fragmentOf(kept),
    },
    ...(Object.keys(limits).length === 0 ? {} : { limits }),
  }
}

/** The image has no user of its own: its script works in any folder where it may write. */
const withoutRoot = { user: 10_001, env: { HOME: '/tmp' } }

const workload = (kept: TerraformSpec): WorkloadSpec => {
  const { job_resources: resources } = kept
  const { cpu_milli: cpuMillicores, ram_mib: memoryMb } = resources
  return {
    entrypoint: null,
    arguments: null,
    cpuMillicores,
    memoryMb,
    instances: 0,
    ports: [],
    volumes: [],
    readiness: null,
    liveness: null,
    readyTimeoutMs: 0,
    // 0 means that it was not chosen: the value that was always stored.
    stopGraceMs: chosenGraceMs(kept) ?? 0,
    withoutRoot,
    ...machineLabelsIn(kept),
  }
}

const verbs: [TaskEvent, string][] = [
  ['START', 'apply'],
  ['PLAN', 'plan'],
  ['DELETE', 'destroy'],
  ['MIGRATE', 'migrate'],
]

/** A folder of the repository, without leading and trailing slashes. */
const folderOf = ({ terraform_files_source: { git_repository: git } }: TerraformSpec): string =>
  plainPath(git.root_path) || '.'

const task = (kept: TerraformSpec): TaskSpec => {
  const isOurs = kept.backend.kubernetes !== undefined
  const rest = [toolOf(kept), folderOf(kept), isOurs ? 'here' : 'elsewhere']
  const files = (kept.terraform_variables_source.tf_var_file_paths ?? []).map(plainPath)
  const commands = verbs.map(([event, verb]) => [
    event,
    { entrypoint: ['/bin/slipway-module'], arguments: [verb, ...rest, ...files] },
  ])
  // A backend configured by the module has its own lock.
  const unlock = isOurs ? [['UNLOCK', { entrypoint: null, arguments: null }]] : []
  return {
    on: Object.fromEntries([...commands, ...unlock]),
    cron: null,
    maxRestarts: 0,
    timeoutMs: 1000 * (kept.timeout_sec === 0 ? longestSeconds : kept.timeout_sec),
    state: isOurs ? 'HERE' : 'ELSEWHERE',
  }
}

/** A list or an object stays one; anything else is text, which the tool converts to a number or a boolean. */
const meantBy = (text: string): unknown => {
  if (!/^\s*[[{]/.test(text)) return text
  try {
    return readJson(text)
  } catch {
    return text
  }
}

const extraArguments = ['init', 'plan', 'apply', 'destroy'] as const

const files: NonNullable<DeployableKind<TerraformSpec>['files']> = (kept, secrets) => {
  const variables = (kept.terraform_variables_source.tf_vars ?? []).map(({ key, value, secret }) => [
    key,
    meantBy((secret ? secrets[`tf_vars.${key}`] : value) ?? ''),
  ])
  const words = extraArguments.flatMap((name) => {
    const own = kept.action_extra_arguments?.[name] ?? []
    return own.length === 0 ? [] : [{ path: `/slipway-input/arguments.${name}`, content: `${own.join('\n')}\n` }]
  })
  const own = { path: '/slipway-input/variables.tfvars.json', content: JSON.stringify(Object.fromEntries(variables)) }
  return variables.length === 0 ? words : [own, ...words]
}

const asked: Partial<Record<TaskEvent, string>> = {
  PLAN: 'TERRAFORM_PLAN_ONLY',
  UNLOCK: 'TERRAFORM_FORCE_UNLOCK_STATE',
  MIGRATE: 'TERRAFORM_MIGRATE_STATE',
}

const subAction: NonNullable<DeployableKind['subAction']> = (action, event) => {
  if (action === 'DEPLOY') return (event === null ? undefined : asked[event]) ?? 'TERRAFORM_PLAN_AND_APPLY'
  return action === 'DELETE' || action === 'UNINSTALL' ? 'TERRAFORM_DESTROY' : 'NONE'
}

/** Only clients that create blueprints can fill it in. */
const refusal = ({ backend }: TerraformSpec): string | null =>
  backend.blueprint === undefined
    ? null
    : 'A blueprint backend needs a catalog of blueprints, which this server does not have: use `kubernetes` or `user_provided`.'

const tasks = (kept: TerraformSpec) => ({ [mainTask]: task(kept) })

export const terraformRun = { refusal, source, workload, tasks, files, subAction }
