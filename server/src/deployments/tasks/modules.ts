/**
 * Services that a module of the operator makes (docs/decisions/0066): their tasks are runs of its tool on this
 * machine's engine, whatever cluster their environment is on. The login is decrypted for a run and is in no release;
 * only those outputs of the module are stored that the kind has checked, for the other services.
 */
import type { Cluster, ServiceRef } from '../../clusters/clusters.ts'
import { type DatabaseModule, databaseModuleOf, noDatabaseModule } from '../../clusters/database-modules.ts'
import { moduleProviders } from '../../clusters/modules.ts'
import { isRefusedLogin, type Login, openLogin } from '../../clusters/provider-login.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import { withClaim } from '../../work/queue.ts'
import type { Output, Source, TaskEvent, TaskSpec } from '../deployments.ts'
import type { ModuleSource } from '../desired/modules.ts'
import type { TaskToRun } from '../desired/tasks.ts'
import { kindOf } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import {
  holdToolImage,
  type ModuleVerb,
  moduleCommand,
  moduleFiles,
  moduleGraceMs,
  toolFailure,
  toolImageMs,
} from './module-tool.ts'
import { sealOutputs, writeOutputs } from './outputs.ts'
import { type Runnable, runTask, type TaskClaim } from './run.ts'

const minute = 60_000

/** What a module makes a service of; null: no module does. `source`: of its release; absent: as configured now. */
export const moduleSourceOf = (
  { parts, service }: ServiceRun,
  source: Source = kindOf(parts, service.kind).source(service.spec),
): ModuleSource | null => (source.from === 'module' ? source : null)

/** Where the tasks of a service run; those of a module have a network of their own, separate from the environment's. */
export const placeOfTasks = (run: ServiceRun): { cluster: Cluster; ref: ServiceRef } => {
  const { cluster, ref, parts } = run
  if (moduleSourceOf(run) === null) return { cluster, ref }
  return { cluster: parts.clusters.own, ref: { ...ref, environmentId: ref.serviceId } }
}

/** Removes the objects of a module's tasks from this machine; leftovers are swept later. */
export const clearPlace = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  if (moduleSourceOf(run) === null) return
  await run.parts.clusters.own.runtime.removeEnvironment(run.service.id, signal).catch((error: unknown) => {
    run.parts.log.debug({ err: error, serviceId: run.service.id }, 'the network of a tool is swept later')
  })
}

/** The tasks of such a service; the operator's module determines the command and the time limit of each run. */
export const moduleTask: TaskSpec = {
  on: Object.fromEntries(
    (['START', 'STOP', 'DELETE', 'PLAN', 'UNLOCK'] satisfies TaskEvent[]).map((event) => [
      event,
      { entrypoint: null, arguments: null },
    ]),
  ),
  cron: null,
  maxRestarts: 0,
  timeoutMs: 0,
  state: 'HERE',
}

const verbs: Partial<Record<TaskEvent, ModuleVerb>> = { START: 'apply', STOP: 'apply', PLAN: 'plan', DELETE: 'destroy' }

const noLogin: Login = { env: {}, hidden: [] }

const readCluster = async ({ parts, service }: ServiceRun): Promise<Record<string, unknown>> => {
  const [row] = await parts.database.query<{ spec: Record<string, unknown> }>('select spec from node where id = $1', [
    service.clusterId,
  ])
  return row?.spec ?? {}
}

const loginOf = async (run: ServiceRun, { provider }: ModuleSource, cluster: object): Promise<Secret<Login>> =>
  moduleProviders.some((each) => each === provider)
    ? openLogin(run.parts, run.claim.organizationId, { ...cluster, cloud_provider: provider })
    : new Secret(noLogin)

/** Outputs that are stored already: the tool may print them again. */
const toldSecrets = async ({ parts, service, claim }: ServiceRun): Promise<string[]> => {
  const rows = await parts.database.query<{ id: string; sealed: string }>(
    'select id, sealed from service_output where service_id = $1 and sealed is not null',
    [service.id],
  )
  const open = async ({ id, sealed }: (typeof rows)[number]) =>
    (
      await parts.sealer.open(claim.organizationId, { table: 'service_output', row: id, column: 'sealed' }, sealed)
    ).reveal()
  return Promise.all(rows.map(open))
}

const documentOf = (
  { service, claim }: ServiceRun,
  { fields, type }: ModuleSource,
  event: TaskEvent,
  cluster: Readonly<Record<string, unknown>>,
): object => ({
  ...fields,
  type,
  id: service.id,
  environment_id: claim.environmentId,
  organization_id: claim.organizationId,
  cluster_id: service.clusterId,
  region: cluster.region ?? '',
  stopped: event === 'STOP' || (event === 'DELETE' && service.desired === 'STOPPED'),
})

/** The tool has printed a password: its log is hidden. */
const hideLog = async (run: ServiceRun): Promise<void> => {
  const { parts, claim, service, log } = run
  await log.flush()
  await withClaim(parts.database, claim, (tx) =>
    tx.query(`delete from deployment_log where deployment_id = $1 and service_id = $2 and step = 'task'`, [
      claim.id,
      service.id,
    ]),
  )
}

/** For every run of the tool: a password whose output is not `sensitive` was printed. */
const refuseLeak = async (
  run: ServiceRun,
  { outputs: names }: DatabaseModule,
  outputs: readonly Output[] | null,
): Promise<void> => {
  if (outputs?.find(({ name }) => name === names.password)?.sensitive !== false) return
  await hideLog(run)
  throw new DeploymentError(
    'module_leak',
    `The module must mark its output ${names.password} as \`sensitive\`: its value was in the output of the tool, which is removed from the log.`,
  )
}

/** Stores the outputs of the module as checked by the kind. */
const keep = async (
  { parts, claim, service }: ServiceRun,
  { write }: TaskClaim,
  source: ModuleSource,
  { outputs: names }: DatabaseModule,
  outputs: readonly Output[] | null,
): Promise<void> => {
  const all = new Map((outputs ?? []).map((one) => [one.name, one]))
  const told = Object.entries(names).flatMap(([name, output]) => {
    const found = all.get(output)
    return found === undefined ? [] : [[name, found.value]]
  })
  const judged = kindOf(parts, service.kind).told!(source, Object.fromEntries(told))
  const rows = await sealOutputs(parts.sealer, claim.organizationId, judged)
  await write((tx) => writeOutputs(tx, claim.organizationId, service.id, rows))
}

const explain =
  ({ provider }: ModuleSource) =>
  (error: unknown): never => {
    if (!(error instanceof DeploymentError)) throw error
    const isOfProvider = moduleProviders.some((each) => each === provider)
    if (error.code === 'task_failed' && isOfProvider && isRefusedLogin(provider, error.lines))
      throw new DeploymentError(
        'invalid_credentials',
        'The provider does not accept the credentials of the cluster of this environment: change them, then deploy again.',
      )
    throw toolFailure(error)
  }

/** Runs the tool for one event, to its end. Fails as the task does, with the tool's explanation. */
export const runModule = async (
  run: ServiceRun,
  claim: TaskClaim,
  { workload, releaseId }: Pick<Runnable, 'workload' | 'releaseId'>,
  { name, spec, event }: TaskToRun,
  source: ModuleSource,
): Promise<void> => {
  const { parts, step, log } = run
  const module = databaseModuleOf(parts.databaseModules, source.provider, source.type)
  if (module === null) throw new DeploymentError('module_missing', noDatabaseModule(source.provider, source.type))
  const cluster = await readCluster(run)
  const { env, hidden } = (await loginOf(run, source, cluster)).reveal()
  const say = (text: string): void => log.line('pull', text)
  const image = await step('tool', { deadlineMs: toolImageMs, remember: false }, (signal) =>
    holdToolImage(claim.cluster, claim.organizationId, module, say, signal),
  )
  const files = await moduleFiles(module, documentOf(run, source, event, cluster))
  const its = {
    ...workload,
    ...{ image, environmentId: claim.ref.environmentId, stopGraceMs: moduleGraceMs },
    ...{ env: new Secret(env), files: new Secret(files) },
  }
  const environment = { env: {}, files: [], secretValues: [...hidden, ...(await toldSecrets(run))] }
  const on = { [event]: moduleCommand(module, verbs[event]!) }
  const told = async (outputs: readonly Output[] | null): Promise<void> => {
    await refuseLeak(run, module, outputs)
    if (event === 'START') await keep(run, claim, source, module, outputs)
  }
  const words = { started: `Running ${module.engine} ${verbs[event]}.`, finished: 'The tool has ended well.' }
  await runTask(
    { ...claim, ...words, told },
    { workload: its, environment, releaseId },
    { name, event, spec: { ...spec, on, timeoutMs: module.timeoutMinutes * minute } },
  ).catch(explain(source))
}
