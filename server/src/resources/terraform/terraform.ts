/**
 * Terraform services: modules from a git repository with their variables, run by a tool of an image or of the operator's
 * (terraform/run.ts).
 */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Answered, Change, Spec, Write } from '../../api/operations/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Recorded,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import { deployable } from '../../facets/deployable.ts'
import { MaybeCommitId } from '../../facets/deployment-request.ts'
import { newHistory } from '../../facets/history.ts'
import { advancedSettings } from '../../facets/settings/advanced-settings.ts'
import { deploymentRestrictions } from '../../facets/settings/deployment-restriction.ts'
import { terraformSettings } from '../../facets/settings/settings.ts'
import { invalidField } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Queryable } from '../../store/database.ts'
import {
  completeGitRepository,
  GitRepository,
  GitRepositoryRequest,
  insidePath,
  viewGitRepository,
} from '../service/git-source.ts'
import { Gpus } from '../service/parts.ts'
import { service } from '../service/service.ts'
import { type TerraformSpec, terraformRun } from './run.ts'

const field = 'terraform_variables_source'

const Variable = () =>
  Type.Object({
    key: Text(255, { pattern: '^[A-Za-z_][A-Za-z0-9_-]*$' }),
    value: Maybe(Text(65_536)),
    secret: Maybe(Flag({ default: false })),
  })

/**
 * Variables of a terraform service. A secret one is sealed with the service's row, one column per key; it appears in no
 * configuration, record or audit row, and a change that leaves out its value keeps it.
 */
const VariablesSource = () =>
  Type.Object({
    tf_var_file_paths: Maybe(List(Text(1024, { minLength: 1 }), 50, { default: [] })),
    tf_vars: Maybe(List(Variable(), 500, { default: [] })),
  })

interface KeptVariable {
  key: string
  /** Absent for a secret that stays unchanged. */
  value?: string | Secret
  secret: boolean
}

interface Source {
  tf_var_file_paths: string[]
  tf_vars: KeptVariable[]
}

const sourceOf = (spec: Spec): Source =>
  ({ tf_var_file_paths: [], tf_vars: [], ...(spec[field] as Partial<Source> | undefined) }) as Source

const isKnownSecret = (before: Source, key: string): boolean =>
  before.tf_vars.some((one) => one.key === key && one.secret)

const completeVariables = (body: Spec, { previous }: Change): Source => {
  const { tf_var_file_paths: paths, tf_vars: variables } = sourceOf(body)
  const before = sourceOf(previous?.spec ?? {})
  const seen = new Set<string>()
  variables.forEach(({ key, value, secret }, index) => {
    const at = `/${field}/tf_vars/${index}`
    if (seen.has(key)) throw invalidField(`${at}/key`, 'is used twice')
    seen.add(key)
    if (value === undefined && !(secret && isKnownSecret(before, key))) throw invalidField(`${at}/value`, 'is required')
  })
  const inside = paths.map((path, index) => insidePath(`/${field}/tf_var_file_paths/${index}`, path))
  return { tf_var_file_paths: inside, tf_vars: variables }
}

const columnOf = (key: string): string => `tf_vars.${key}`

/** Seals the secrets of a write, and deletes those that are no longer listed. */
const writeSecrets = async (tx: Queryable, spec: Spec, context: Context, { id }: Change): Promise<void> => {
  const secrets = sourceOf(spec).tf_vars.filter(({ secret }) => secret)
  const sealed: Record<string, string> = {}
  for (const { key, value } of secrets) {
    if (!(value instanceof Secret)) continue
    const place = { table: 'node', row: id, column: columnOf(key) }
    sealed[place.column] = await context.parts.sealer.seal(context.principal.organizationId, place, value.reveal())
  }
  await tx.query(
    `update node set sealed = coalesce((select jsonb_object_agg(key, value) from jsonb_each(sealed || $2::jsonb)
       where not starts_with(key, 'tf_vars.') or key = any($3)), '{}') where id = $1`,
    [id, JSON.stringify(sealed), secrets.map(({ key }) => columnOf(key))],
  )
}

/** Puts the sealed secrets of a row back into the configuration, for its clone. */
const withSecrets = (spec: Spec, sealed: ReadonlyMap<string, Secret>): Spec => {
  const source = sourceOf(spec)
  const open = (one: KeptVariable): KeptVariable => {
    const value = one.secret ? sealed.get(columnOf(one.key)) : undefined
    return value === undefined ? one : { ...one, value }
  }
  return { ...spec, [field]: { ...source, tf_vars: source.tf_vars.map(open) } }
}

/** Wraps secret values so that no JSON shows them, wherever the body is written on the way. */
const withHiddenSecrets = (body: Spec): Spec => {
  const sent = body[field] as Partial<Source> | undefined
  if (sent?.tf_vars === undefined) return body
  const hide = (one: KeptVariable): KeptVariable =>
    one.secret && typeof one.value === 'string' ? { ...one, value: new Secret(one.value) } : one
  return { ...body, [field]: { ...sent, tf_vars: sent.tf_vars.map(hide) } }
}

/** Wraps a create or an edit: hides its secret variables from the start. */
const hideSecrets = async (context: Context, write: Write): Promise<Answered> => {
  await context.parts.sealer.prepare(context.principal.organizationId)
  return write({ ...context, body: withHiddenSecrets(context.body) })
}

const viewVariables = ({ tf_vars: variables = [], ...rest }: Partial<Source>) => {
  return {
    ...rest,
    tf_vars: variables.map(({ key, value, secret }) => (secret ? { key, secret } : { key, value: value!, secret })),
  }
}

const mapOf = (value: object) =>
  Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: value, maxProperties: 100 })
const words = { type: 'array', maxItems: 100, items: { type: 'string', maxLength: 4096 } }

const Backend = () =>
  Type.Object({
    kubernetes: Maybe(Nullable(Type.Object({}))),
    user_provided: Maybe(Nullable(Type.Object({}))),
    blueprint: Maybe(
      Nullable(
        Recorded(
          Type.Object({ type: Text(100, { minLength: 1 }), config: Maybe(mapOf({ type: 'string', maxLength: 4096 })) }),
          'a deployment with it is refused.',
        ),
      ),
    ),
  })

const AutoDeploy = () =>
  Type.Object(
    {
      auto_deploy: Maybe(Flag({ default: false })),
      terraform_action: Maybe(OneOf(['DEFAULT', 'PLAN', 'NOOP'], { default: 'DEFAULT' })),
    },
    { default: { auto_deploy: false, terraform_action: 'DEFAULT' } },
  )

const usualResources = { cpu_milli: 500, ram_mib: 512, gpu: 0, storage_gib: 1 }

const JobResources = () =>
  Type.Object(
    {
      cpu_milli: Maybe(Whole(10, 1_000_000, { default: usualResources.cpu_milli })),
      ram_mib: Maybe(Whole(6, 100_000_000, { default: usualResources.ram_mib })),
      gpu: Maybe(Gpus()),
      storage_gib: Maybe(Recorded(Whole(0, 65_536, { default: usualResources.storage_gib }))),
    },
    { default: usualResources },
  )

const Fragment = () =>
  Type.Object({
    type: OneOf(['file', 'inline']),
    path: Maybe(Text(1024, { minLength: 1 })),
    content: Maybe(Text(65_536)),
  })

const engines = ['TERRAFORM', 'OPEN_TOFU']

const spec = Type.Object({
  auto_deploy_config: Maybe(AutoDeploy()),
  terraform_files_source: Type.Object(
    { git_repository: GitRepositoryRequest() },
    { 'x-as-read': { git_repository: ['git', 'git_repository'] } },
  ),
  terraform_variables_source: Maybe(VariablesSource()),
  backend: Backend(),
  engine: OneOf(engines),
  provider_version: Type.Object({
    read_from_terraform_block: Maybe(Recorded(Flag({ default: false }))),
    explicit_version: Text(64, {
      pattern: '^[0-9A-Za-z.+-]*$',
      description:
        'The tag of `build.engine_image` (advanced settings). Without that image, the program installed on this server is used, whatever its version.',
    }),
  }),
  timeout_sec: Maybe(Whole(0, 86_400, { default: 600 })),
  job_resources: Maybe(JobResources()),
  use_cluster_credentials: Maybe(Recorded(Flag({ default: false }))),
  action_extra_arguments: Maybe(mapOf(words)),
  dockerfile_fragment: Maybe(Nullable(Fragment())),
  blueprint_id: Maybe(Recorded(Nullable(Uuid()))),
})

const filesPath = ['terraform_files_source', 'git_repository']

type Kept = TerraformSpec & {
  auto_deploy_config: { auto_deploy: boolean; terraform_action: keyof typeof pushed }
} & Spec

/** The action of a push, by `terraform_action`. */
const pushed = { DEFAULT: {}, PLAN: { forceEvent: 'PLAN' }, NOOP: null } as const

/** Keeps only the configured backend. */
const completeBackend = (sent: Spec): Spec => {
  const named = Object.entries(sent).filter(([, value]) => value !== null && value !== undefined)
  if (named.length !== 1)
    throw invalidField('/backend', 'must have exactly one of `kubernetes`, `user_provided` and `blueprint`')
  return Object.fromEntries(named)
}

const completeFragment = (sent: unknown): unknown => {
  const { type, path, content } = (sent ?? {}) as { type?: string; path?: string; content?: string }
  if (type === undefined) return null
  if (type === 'inline' && content === undefined) throw invalidField('/dockerfile_fragment/content', 'is required')
  if (type === 'file' && path === undefined) throw invalidField('/dockerfile_fragment/path', 'is required')
  return type === 'inline' ? { type, content } : { type, path: insidePath('/dockerfile_fragment/path', path!) }
}

/** They are passed on one per line. */
const checkArguments = (sent: unknown): void => {
  for (const [name, list] of Object.entries((sent ?? {}) as Record<string, string[]>))
    if (list.some((word) => /[\n\r\0]/.test(word)))
      throw invalidField(`/action_extra_arguments/${name}`, 'must not contain line breaks')
}

const complete = (body: Spec, _context: Context, change: Change<Kept>): Kept => {
  const before = change.previous?.spec
  checkArguments(body.action_extra_arguments)
  const { git_repository: sent } = body.terraform_files_source as TerraformSpec['terraform_files_source']
  const known = before?.terraform_files_source.git_repository
  return {
    ...body,
    terraform_files_source: { git_repository: completeGitRepository(sent, known, `/${filesPath.join('/')}`) },
    terraform_variables_source: completeVariables(body, change),
    backend: completeBackend(body.backend as Spec),
    action_extra_arguments: body.action_extra_arguments ?? {},
    dockerfile_fragment: completeFragment(body.dockerfile_fragment),
  } as Kept
}

const DeleteQuery = Type.Object({
  resources_only: Maybe(Flag({ description: 'Keep the configuration: the same as an uninstall.' })),
})

const EndingQuery = Type.Object({
  force_terraform_action: Maybe(
    OneOf(['SKIP_DESTROY'], {
      description:
        'Keep the resources. An uninstall keeps their state too: a later deploy manages them again, a later delete destroys them.',
    }),
  ),
})

const deploys = deployable({
  stops: false,
  status: false,
  deployBody: Type.Object({
    id: Maybe(Nullable(Uuid())),
    git_commit_id: MaybeCommitId(),
    action: Maybe(Nullable(OneOf(['PLAN', 'FORCE_UNLOCK', 'MIGRATE_STATE']))),
  }),
  removal: {
    summary: 'Destroy the resources of a terraform service and delete it; continues after the response',
    query: DeleteQuery,
    endingQuery: EndingQuery,
    keepsConfiguration: ({ resources_only: only }) => only === true,
    skipsEnding: ({ force_terraform_action: action }) => action === 'SKIP_DESTROY',
  },
})

export const terraform = service({
  kind: 'terraform',
  path: 'terraform',
  noun: 'Terraform',
  nounWithArticle: 'a terraform service',
  list: { id: 'listTerraforms', words: 'terraform services' },
  groups: false,
  spec,
  record: {
    auto_deploy: Computed(Flag()),
    auto_deploy_config: AutoDeploy(),
    terraform_files_source: Computed(Type.Object({ git: Type.Object({ git_repository: GitRepository() }) })),
    terraform_variables_source: Computed(VariablesSource()),
    backend: Backend(),
    engine: OneOf(engines),
    provider_version: Type.Object({ read_from_terraform_block: Maybe(Flag()), explicit_version: Text(64) }),
    timeout_sec: Whole(0),
    job_resources: JobResources(),
    use_cluster_credentials: Flag(),
    action_extra_arguments: mapOf(words),
  },
  git: filesPath,
  validate: complete,
  view: ({ terraform_files_source: files, terraform_variables_source: variables, ...rest }, { commit, tokenName }) => ({
    ...rest,
    auto_deploy: rest.auto_deploy_config.auto_deploy,
    terraform_files_source: {
      git: {
        git_repository: viewGitRepository(files.git_repository, commit, tokenName),
      },
    },
    terraform_variables_source: viewVariables(variables),
  }),
  around: hideSecrets,
  written: writeSecrets,
  withSecrets,
  facets: [deploys, newHistory, advancedSettings(terraformSettings), deploymentRestrictions],
  deployable: {
    ...terraformRun,
    push: ({ auto_deploy_config: config }) => (config.auto_deploy ? pushed[config.terraform_action] : null),
  },
})
