/**
 * Creates, updates and removes the environment of a pull request. Each is one transaction with the preview's row,
 * under the lease of the preview: there is one environment, or none, whenever a process dies.
 */

import { Readable } from 'node:stream'
import type { Context } from '../../api/operations/context.ts'
import type { Principal } from '../../api/operations/operation.ts'
import type { Parts } from '../../api/parts.ts'
import { readClusterId } from '../../clusters/refs.ts'
import { noteStatuses } from '../../deployments/sources/commit-status/rows.ts'
import { pushOrigin } from '../../deployments/sources/git/request-push.ts'
import { lockEnvironment } from '../../deployments/status/service-state.ts'
import { servicesOf } from '../../facets/deployment-request.ts'
import { ApiError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { limitReached, usualLimits } from '../../limits/limits.ts'
import type { Queryable } from '../../store/database.ts'
import { textLockSql } from '../../store/locks.ts'
import { writeOwnAudit } from '../../store/own-audit.ts'
import { findNode } from '../../store/tree.ts'
import { holdLease } from '../../work/lease.ts'
import { cloneEnvironment, type EnvironmentRequest } from '../project/clone.ts'
import type { Service } from '../service/service.ts'
import {
  countPlaces,
  noteImages,
  type Preview,
  previewLeases,
  readBuilt,
  readSource,
  type SourceOf,
  writePreview,
} from './rows.ts'

export interface MakeParts {
  parts: Parts
  services: readonly Service[]
}

const defaultHours = 168
const nobody = '00000000-0000-0000-0000-000000000000'

const hoursOf = ({ settings }: Parts): number => settings.previewHours ?? defaultHours

const triggeredBy = ({ number }: Preview): string => `pull request ${number}`

const ourselves = (preview: Preview): Principal => ({
  ...{
    tokenId: nobody,
    name: triggeredBy(preview),
    organizationId: preview.organizationId,
    scopes: new Set(['Admin']),
  },
  ...{ createdBy: null, expiresAt: null, role: null, within: null, account: null, memberships: [], isOperator: false },
})

type Transaction = Context['transaction']

/** The context for a clone, without a caller's request. */
const contextOf = async (
  parts: Parts,
  preview: Preview,
  body: EnvironmentRequest,
  transaction: Transaction,
): Promise<Context<EnvironmentRequest> | null> => {
  const node = await findNode('environment')(parts.database, preview.originId, preview.organizationId)
  if (node === null) return null
  return {
    ...{ parts, db: parts.database, principal: ourselves(preview), node, body, params: {}, query: {}, headers: {} },
    ...{ requestId: newId(), userAgent: null, origin: pushOrigin, scheme: 'http:', isOwn: true, transaction },
    upload: Readable.from([]),
    write: (work) => work(parts.database),
    onlyRecorded() {},
    async authorizeAlso() {},
    setHeader() {},
    hijack() {
      throw new Error('no caller waits for an answer')
    },
  }
}

const maxName = 100

/** `staging shop #12`: the environment, the repository and the request; host names of its services are made from it. */
const nameOf = (origin: string, { number, id }: Preview, { url }: SourceOf, isTaken: boolean): string => {
  const repository = /([^/]+?)(\.git)?\/*$/.exec(url)?.[1] ?? 'repository'
  const name = `${origin.slice(0, maxName)} ${repository.slice(0, maxName)} #${number}`
  return isTaken ? `${name} ${id.slice(0, 8)}` : name
}

const writeDeployAudit = async (tx: Queryable, preview: Preview, environmentId: string, action: string, id: string) => {
  const [row] = await tx.query<{ name: string }>('select name from node where id = $1', [environmentId])
  await writeOwnAudit(tx, preview.organizationId, {
    ...{ actor: 'SYSTEM', by: triggeredBy(preview), request: { origin: pushOrigin, requestId: newId() } },
    ...{ eventType: `TRIGGER_${action}`, targetType: 'ENVIRONMENT', subTargetType: null },
    ...{
      target: { id: environmentId, name: row?.name ?? null },
      place: { projectId: preview.projectId, environmentId },
    },
    change: { deployment_request_id: id, pull_request: preview.number },
  })
}

/** Deploys; the services of the repository with the commit of the request. */
const deploy = async (
  tx: Queryable,
  { parts }: MakeParts,
  preview: Preview,
  environmentId: string,
  source: SourceOf,
  isNew: boolean,
): Promise<void> => {
  const { organizationId } = preview
  const commitId = preview.commitId!
  const built = await readBuilt(tx, environmentId, source)
  const others = isNew ? (await servicesOf(tx, environmentId)).filter((id) => !built.includes(id)) : []
  const { deploymentId } = await parts.deployments.request(tx, {
    ...{ organizationId, environmentId, action: 'DEPLOY', wholeEnvironment: isNew },
    ...{ origin: pushOrigin, triggeredBy: triggeredBy(preview), requestId: newId() },
    services: [...built.map((id) => ({ id, commitId })), ...others.map((id) => ({ id }))],
  })
  await writeDeployAudit(tx, preview, environmentId, 'DEPLOY', deploymentId)
  const told = built.map((serviceId) => ({ serviceId, commitId, deploymentId, reason: null }))
  await noteStatuses(tx, { organizationId, ...source }, told)
  const made = { state: 'ACTIVE', reason: null, environmentId, deployedCommit: commitId, deploymentId } as const
  await writePreview(tx, preview, { ...made, isExpired: false }, hoursOf(parts))
}

/** Points cloned services to the branch of the request; only the preview deploys them. */
const turnToRequest = async (tx: Queryable, { branch }: Preview, environmentId: string, { url }: SourceOf) => {
  await tx.query(
    `update node n set updated_by = null, spec = case
       when jsonb_typeof(n.spec -> 'git_repository') = 'object' then
         jsonb_set(n.spec #- '{git_repository,head_commit_id}', '{git_repository,branch}', to_jsonb($3::text))
       when jsonb_typeof(n.spec #> '{source,docker,git_repository}') = 'object' then
         jsonb_set(n.spec #- '{source,docker,git_repository,head_commit_id}', '{source,docker,git_repository,branch}', to_jsonb($3::text))
       else jsonb_set(n.spec #- '{terraform_files_source,git_repository,head_commit_id}',
         '{terraform_files_source,git_repository,branch}', to_jsonb($3::text)) end
     from node s cross join repository_of(s.spec) r
     where s.id = n.id and n.parent_id = $1 and n.name_scope = 'service'
       and repository_key(r ->> 'url') = repository_key($2)`,
    [environmentId, url, branch],
  )
  await tx.query(
    `update node set updated_by = null, spec = case
       when kind = 'terraform' then jsonb_set(spec, '{auto_deploy_config,auto_deploy}', 'false')
       when spec ? 'auto_deploy' then jsonb_set(spec, '{auto_deploy}', 'false') else spec end
     where parent_id = $1 and name_scope = 'service'`,
    [environmentId],
  )
  await tx.query('update node set updated_by = null where id = $1', [environmentId])
}

/** A preview sleeps without traffic: services that requests can wake have no instances then. */
const letSleep = async (tx: Queryable, { parts }: MakeParts, environmentId: string): Promise<void> => {
  const clusterId = await readClusterId(tx, environmentId)
  const { runtime } = await parts.clusters.of(clusterId!, tx)
  if (!runtime.abilities.has('sleep')) return
  await tx.query(
    `update node set updated_by = null, spec = jsonb_set(spec, '{min_running_instances}', '0')
     where parent_id = $1 and name_scope = 'service' and spec ? 'min_running_instances'
       and exists (select from jsonb_array_elements(spec -> 'ports') p where p -> 'publicly_accessible' = 'true')
       and not exists (select from jsonb_array_elements(spec -> 'ports') p
         where p -> 'publicly_accessible' = 'true' and p ->> 'protocol' not in ('HTTP', 'GRPC'))`,
    [environmentId],
  )
}

/** 409 while the project has its maximum of previews. */
const refuseFull = async (db: Queryable, { settings }: Parts, preview: Preview): Promise<void> => {
  const { previews: most } = settings.limits ?? usualLimits
  const others = most === 0 ? 0 : await countPlaces(db, preview)
  if (most !== 0 && others >= most) throw limitReached('previews', most, others + 1)
}

/** Of two that need the last place, one gets it. */
const takePlace = async (tx: Queryable, parts: Parts, preview: Preview): Promise<void> => {
  await tx.query(textLockSql, [`previews ${preview.projectId}`])
  await refuseFull(tx, parts, preview)
}

/** Clones the environment and deploys it with the branch; false: its origin no longer exists. */
export const make = async (makeParts: MakeParts, preview: Preview, isTaken = false): Promise<boolean> => {
  const { parts, services } = makeParts
  await refuseFull(parts.database, parts, preview)
  const source = await readSource(parts.database, preview)
  const transaction: Transaction = (work) =>
    holdLease(parts.database, previewLeases, preview, async (tx) => {
      await takePlace(tx, parts, preview)
      const made = await work(tx)
      const { id } = made as { id: string }
      await turnToRequest(tx, preview, id, source)
      await letSleep(tx, makeParts, id)
      await deploy(tx, makeParts, preview, id, source, true)
      return made
    })
  const context = await contextOf(parts, preview, { name: '', mode: 'PREVIEW' }, transaction)
  if (context === null) return false
  context.body = { mode: 'PREVIEW', name: nameOf(context.node.name, preview, source, isTaken) }
  try {
    await cloneEnvironment(services)(context)
    return true
  } catch (error) {
    const isOurName = error instanceof ApiError && error.status === 409 && /name/.test(error.code)
    if (!isOurName || isTaken) throw error
    return make(makeParts, preview, true)
  }
}

/** Deploys the newer commit; queued deployments of earlier ones are canceled. */
export const update = (makeParts: MakeParts, preview: Preview, environmentId: string): Promise<void> =>
  holdLease(makeParts.parts.database, previewLeases, preview, async (tx) => {
    const { deployments } = makeParts.parts
    await lockEnvironment(tx, environmentId)
    const waiting = await tx.query<{ id: string }>(
      `select id from deployment where environment_id = $1 and state = 'QUEUED' and origin = $2 and action = 'DEPLOY'
         and not whole_environment order by seq for update skip locked`,
      [environmentId, pushOrigin],
    )
    for (const { id } of waiting) await deployments.cancel(tx, environmentId, { deploymentId: id })
    await deploy(tx, makeParts, preview, environmentId, await readSource(tx, preview), false)
  })

/** Deletes the environment, and ends its deployments in progress. */
export const remove = (
  { parts }: MakeParts,
  preview: Preview,
  environmentId: string,
  change: { reason: string | null; isExpired: boolean },
): Promise<void> =>
  holdLease(parts.database, previewLeases, preview, async (tx) => {
    await lockEnvironment(tx, environmentId)
    const services = (await servicesOf(tx, environmentId)).map((id) => ({ id }))
    const { deploymentId } = await parts.deployments.request(tx, {
      ...{ organizationId: preview.organizationId, environmentId, action: 'DELETE', wholeEnvironment: true, services },
      ...{ origin: pushOrigin, triggeredBy: triggeredBy(preview), requestId: newId() },
    })
    await writeDeployAudit(tx, preview, environmentId, 'DELETE', deploymentId)
    await writePreview(tx, preview, { state: 'REMOVING', deploymentId, ...change })
    await noteImages(tx, preview)
  })
