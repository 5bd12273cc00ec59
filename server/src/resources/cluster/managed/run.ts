/**
 * One run of the tool for a cluster: prepared, run to its end as a task of this machine's engine, and its result
 * stored. The holder of the claim can begin again at any point: an execution in progress is joined.
 */
import type { Parts } from '../../../api/parts.ts'
import type { Cluster } from '../../../clusters/clusters.ts'
import { placeOfMade } from '../../../clusters/kubernetes.ts'
import { type ClusterModule, moduleOfCluster } from '../../../clusters/modules.ts'
import { isRefusedLogin, type Login, openLogin } from '../../../clusters/provider-login.ts'
import { mainTask, type Output, type TaskEvent, type TaskSpec } from '../../../deployments/deployments.ts'
import { Canceled } from '../../../deployments/progress/canceled.ts'
import { attempt } from '../../../deployments/progress/steps.ts'
import { taskIdOf } from '../../../deployments/tasks/ids.ts'
import {
  holdToolImage,
  type ModuleVerb,
  moduleCommand,
  moduleFiles,
  moduleGraceMs,
  toolFailure,
  toolImageMs,
} from '../../../deployments/tasks/module-tool.ts'
import { type Runnable, runTask, type TaskClaim } from '../../../deployments/tasks/run.ts'
import { endTaskOf } from '../../../deployments/tasks/state.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { newId } from '../../../lib/ids.ts'
import { Secret } from '../../../lib/secret.ts'
import type { Workload } from '../../../runtimes/runtime.ts'
import type { Queryable } from '../../../store/database.ts'
import { writeOwnAudit } from '../../../store/own-audit.ts'
import { deleteNode } from '../../../store/tree.ts'
import { holdLease } from '../../../work/lease.ts'
import type { Held } from '../../../work/worker.ts'
import { claim as claimEngine } from '../engine-claims.ts'
import { asDeploymentError, identify, kubeconfigOf, openOutputs } from './connect.ts'
import { type ClusterLog, createClusterLog, trimLog } from './log.ts'
import {
  type Ending,
  endRun,
  holdRun,
  keepKubeconfig,
  lockUnknown,
  managedLeases,
  type RunClaim,
  readSpec,
  writeStatus,
} from './rows.ts'
import { courses } from './states.ts'

const minute = 60_000
const connectMs = 5 * minute
/** Beyond the tool's own time, for all other steps and for an engine that does not answer. */
const patienceMs = 120 * minute

export interface RunTimes {
  graceMs?: number
  connectMs?: number
}

interface Run extends Held {
  parts: Parts
  times: RunTimes
  claim: RunClaim
  /** The cluster of this machine, where the tool runs. */
  cluster: Cluster
  log: ClusterLog
}

const stepOf = ({ claim }: Run, at: 0 | 1 | 2): string => courses[claim.action].steps[at]

const say = (run: Run, text: string, level?: 'error'): void =>
  run.log.add(stepOf(run, level === 'error' ? 2 : 0), text, level)

const show = (run: Run, status: string): Promise<void> =>
  holdLease(run.parts.database, managedLeases, run.claim, (tx) => writeStatus(tx, run.claim.id, status))

const taskOf = ({ claim: { id, runId } }: Run) => ({
  environmentId: id,
  serviceId: id,
  taskId: taskIdOf(runId, id),
})

const imageOf = (run: Run, module: ClusterModule): Promise<string> => {
  const { cluster, claim, signal, parts } = run
  const find = async (inner: AbortSignal): Promise<string> =>
    holdToolImage(cluster, claim.organizationId, module, (text) => say(run, text), inner)
  return attempt('image', toolImageMs, find, signal, parts.clock, () => {})
}

const workloadOf = (run: Run, image: string, { env }: Login, files: { path: string; content: string }[]): Workload => {
  const { id, organizationId } = run.claim
  return {
    artifact: 'image',
    ...{ organizationId, projectId: id, environmentId: id, serviceId: id, revision: run.claim.runId, aliases: [] },
    ...{ image, entrypoint: null, arguments: null, cpuMillicores: 1000, memoryMb: 1024, instances: 0 },
    ...{ ports: [], volumes: [], readiness: null, liveness: null, readyTimeoutMs: 0 },
    stopGraceMs: run.times.graceMs ?? moduleGraceMs,
    env: new Secret(env),
    files: new Secret(files),
  }
}

const verbs = { apply: 'START', plan: 'PLAN', destroy: 'DELETE' } as const satisfies Record<ModuleVerb, TaskEvent>

const specOf = (module: ClusterModule, verb: ModuleVerb): TaskSpec => ({
  on: { [verbs[verb]]: moduleCommand(module, verb) },
  cron: null,
  maxRestarts: 0,
  timeoutMs: module.timeoutMinutes * minute,
  state: 'HERE',
})

const taskClaim = (run: Run, told: TaskClaim['told']): TaskClaim => {
  const { parts, claim, cluster, signal, check, log } = run
  const { environmentId, serviceId, taskId } = taskOf(run)
  return {
    ...{ parts, cluster, organizationId: claim.organizationId, id: claim.runId, taskId },
    ref: { clusterId: claim.id, environmentId, serviceId },
    started: courses[claim.action].begins,
    finished: 'The tool has ended well.',
    logLine: (text) => log.output(stepOf(run, 0), text),
    told,
    // Nothing is stored: a server that resumes the run joins its execution.
    step: (name, { deadlineMs }, work) => {
      const checked = async (inner: AbortSignal) => {
        await check()
        return work(inner)
      }
      return attempt(name, deadlineMs, checked, signal, parts.clock, () => {})
    },
    write: (work) => holdLease(parts.database, managedLeases, claim, work),
  }
}

const explain = (run: Run, error: DeploymentError): DeploymentError => {
  if (error.code === 'state_unknown' || error.code === 'state_locked')
    return new DeploymentError(
      error.code,
      'The run was lost, and it is unknown what it did at the provider. The cluster is locked: check the resources there, then unlock it.',
    )
  const { cloud_provider: provider } = run.claim.document
  if (error.code === 'task_failed' && isRefusedLogin(String(provider), error.lines))
    return new DeploymentError('invalid_credentials', 'The provider does not accept the credentials of this cluster.')
  return toolFailure(error)
}

/** Prepares the tool and runs it; resolves to the module's outputs. */
const runTool = async (run: Run, module: ClusterModule): Promise<readonly Output[] | null> => {
  const { parts, claim, log } = run
  const course = courses[claim.action]
  const spec = await readSpec(parts.database, claim.id)
  const login = await openLogin(parts, claim.organizationId, { ...spec, cloud_provider: claim.document.cloud_provider })
  const image = await imageOf(run, module).catch((error: unknown) => {
    throw error instanceof DeploymentError ? new DeploymentError('build', error.message, { cause: error }) : error
  })
  const files = await moduleFiles(module, claim.document)
  await show(run, course.working)
  await log.forget()
  let outputs: readonly Output[] | null = null
  const { env, hidden } = login.reveal()
  const runnable: Runnable = {
    workload: workloadOf(run, image, { env, hidden }, files),
    environment: { env: {}, files: [], secretValues: hidden },
    releaseId: null,
  }
  const told = async (all: readonly Output[] | null): Promise<void> => {
    outputs = all
  }
  const { verb } = course
  await runTask(taskClaim(run, told), runnable, { name: mainTask, spec: specOf(module, verb), event: verbs[verb] })
  return outputs
}

/** Stores the login from the module's outputs, once the cluster accepts it. */
const connect = async (run: Run, module: ClusterModule, outputs: readonly Output[] | null): Promise<void> => {
  const { parts, claim, times, signal } = run
  const open = openOutputs(module, outputs ?? [])
  if (open.length > 0)
    throw new DeploymentError(
      'module_leak',
      `The module must mark its output ${open.join(' and ')} as \`sensitive\`: its value was in the output of the tool, which is removed from the log.`,
    )
  const kubeconfig = new Secret(kubeconfigOf(module, outputs))
  say(run, 'Connecting to the cluster.')
  const facts = await identify(parts, kubeconfig, times.connectMs ?? connectMs, signal)
  const sealed = await parts.sealer.seal(claim.organizationId, placeOfMade(claim.id), kubeconfig.reveal())
  await holdRun(parts.database, claim, async (tx) => {
    await claimEngine(tx, parts.settings.limits, claim.id, facts)
    await keepKubeconfig(tx, claim.id, sealed)
  }).catch((error: unknown) => {
    throw asDeploymentError(error)
  })
  say(run, `Connected to Kubernetes ${facts.version}.`)
}

const work = async (run: Run): Promise<Ending> => {
  const { parts, claim } = run
  const { action, document, mark } = claim
  const course = courses[action]
  const module = moduleOfCluster(parts.settings.clusterModules, document)
  if (module === null)
    throw new DeploymentError('module_missing', 'This server no longer has a module for the provider of this cluster.')
  if (claim.status === course.queued) await show(run, course.preparing ?? course.working)
  const outputs = await runTool(run, module)
  if (action === 'DRY_RUN') return { status: claim.statusBefore, error: null }
  if (action === 'DELETE') return { status: 'DELETED', error: null }
  if (action === 'STOP') return { status: 'STOPPED', error: null, isStopped: true }
  if (course.connecting !== undefined) await show(run, course.connecting)
  await connect(run, module, outputs)
  const version = document.kubernetes_version
  return { status: course.done!, error: null, applied: mark, isStopped: false, version }
}

const failed = (run: Run, error: DeploymentError): Ending => {
  const course = courses[run.claim.action]
  const isUnbuilt = error.code === 'build' && course.preparing !== undefined
  const status =
    error.code === 'invalid_credentials' ? 'INVALID_CREDENTIALS' : isUnbuilt ? 'BUILD_ERROR' : course.failed
  return { status, error: error.message.slice(0, 500) }
}

const endMs = 10 * minute

/** Asks a running tool to end, so that its effects so far are known afterwards. */
const settle = async ({ parts, cluster, claim, times }: Run, task: ReturnType<typeof taskOf>): Promise<void> => {
  const held = await parts.database.query('select 1 from task_state where id = $1 and held_by = $2', [
    claim.id,
    claim.runId,
  ])
  const graceMs = times.graceMs ?? moduleGraceMs
  if (held.length > 0) await endTaskOf(parts, cluster, task, AbortSignal.timeout(graceMs + endMs), graceMs)
}

/** Leftovers are swept later. */
const clear = async ({ parts, cluster, claim }: Run, task: ReturnType<typeof taskOf>): Promise<void> => {
  const signal = AbortSignal.timeout(minute)
  try {
    await cluster.runtime.endTask(task, signal)
    await cluster.runtime.removeEnvironment(claim.id, signal)
  } catch (error) {
    parts.log.debug({ err: error, cluster: claim.id }, 'leftovers of a run of a cluster are swept later')
  }
}

const usedSql = `select 1 from node where kind = 'environment' and spec ->> 'cluster_id' = $1::text limit 1`

const audited = async (tx: Queryable, { parts, claim }: Run, eventType: string): Promise<void> => {
  const [row] = await tx.query<{ name: string }>('select name from node where id = $1', [claim.id])
  await writeOwnAudit(tx, claim.organizationId, {
    ...{ actor: 'SYSTEM', by: claim.askedBy, eventType, targetType: 'CLUSTER', subTargetType: null },
    target: { id: claim.id, name: row?.name ?? null },
  })
  parts.log.info({ cluster: claim.id, eventType }, 'a run of a cluster has ended')
}

/** The cluster no longer exists at its provider; its row is deleted with all below it. */
const remove = async (run: Run): Promise<Ending | null> => {
  const { parts, claim } = run
  // Lines still being written would block the deletion.
  await run.log.flush()
  return holdRun(parts.database, claim, async (tx) => {
    const used = await tx.query(usedSql, [claim.id])
    if (used.length > 0)
      return {
        status: 'DELETE_ERROR',
        error:
          'An environment was created while the cluster was being deleted at its provider: delete the environment, then the cluster.',
      }
    await audited(tx, run, courses.DELETE.events[1])
    await deleteNode(tx, claim.id, {
      ...{ eventId: newId(), eventType: 'DELETE', targetType: 'CLUSTER', subTargetType: null },
      ...{ projectId: null, environmentId: null, change: null, origin: 'QOVERY_INTERNAL' },
      ...{ triggeredBy: claim.askedBy, actorType: 'SYSTEM', actorId: null, userAgent: null, requestId: newId() },
    })
    await tx.query(`select pg_notify('slipway_cluster', '')`)
    return null
  })
}

const finish = async (run: Run, ending: Ending, isLeak: boolean): Promise<void> => {
  const { parts, claim } = run
  const { events } = courses[claim.action]
  const isGood = ending.error === null && ending.status !== 'CANCELED'
  await run.log.flush()
  await holdRun(parts.database, claim, async (tx) => {
    const isUnknown = await lockUnknown(tx, claim, parts.clock.now())
    if (isUnknown) parts.log.warn({ cluster: claim.id }, 'a run of a cluster was lost: the cluster is locked')
    if (isLeak) await tx.query('delete from cluster_log where run_id = $1 and is_output', [claim.runId])
    await trimLog(tx, claim.id)
    await audited(tx, run, events[isGood ? 1 : 2])
    await endRun(tx, claim.id, ending)
  })
}

/** Whether an error is the end of a run; others are retried, until the time is over. */
const isFinal = ({ parts, claim }: Run, error: unknown, timeoutMinutes: number): boolean => {
  if (error instanceof DeploymentError) return true
  const ageMs = parts.clock.now().getTime() - claim.begunAt.getTime()
  return ageMs > timeoutMinutes * minute + patienceMs
}

const endOf = async (run: Run): Promise<{ ending: Ending; isLeak: boolean }> => {
  const { parts, claim, signal } = run
  try {
    if (claim.isCanceled) throw new Canceled()
    const ending = claim.status === 'DELETED' ? { status: 'DELETED', error: null } : await work(run)
    return { ending, isLeak: false }
  } catch (error) {
    if (error instanceof Canceled || signal.reason instanceof Canceled) {
      say(run, 'Canceled: resources made until then are kept, and the next deployment knows them.')
      return { ending: { status: 'CANCELED', error: null }, isLeak: false }
    }
    signal.throwIfAborted()
    const { timeoutMinutes = 60 } = moduleOfCluster(parts.settings.clusterModules, claim.document) ?? {}
    if (!isFinal(run, error, timeoutMinutes)) throw error
    const known =
      error instanceof DeploymentError
        ? explain(run, error)
        : new DeploymentError('unexpected', `Internal error: the server's log has the details.`)
    say(run, known.message, 'error')
    return { ending: failed(run, known), isLeak: known.code === 'module_leak' }
  }
}

/** Performs the requested action on a cluster, and stores its result. */
export const runClaim = async (parts: Parts, claim: RunClaim, held: Held, times: RunTimes): Promise<void> => {
  const cluster = parts.clusters.own
  const log = createClusterLog(parts.database, parts.clock, claim)
  const run: Run = { ...held, parts, claim, cluster, log, times }
  const task = taskOf(run)
  const { ending, isLeak } = await endOf(run)
  await settle(run, task)
  if (ending.status === 'DELETED') {
    await show(run, 'DELETED')
    // Removed before its id can no longer be found.
    await clear(run, task)
    const kept = await remove(run)
    if (kept !== null) await finish(run, kept, false)
  } else {
    if (ending.error === null && ending.status !== 'CANCELED') log.add(stepOf(run, 1), 'Done.')
    await finish(run, ending, isLeak)
    await clear(run, task)
  }
}
