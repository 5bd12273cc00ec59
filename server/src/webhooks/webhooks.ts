/**
 * Notifies receivers of events. An event is written in the transaction of the change it is about and delivered at least
 * once, signed, in order per receiver and service as long as the receiver answers. Does not know how deployments work.
 */
import type { ServiceType } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'

/** The public API's spelling; each receiver gets the spelling it registered with. */
export type DeploymentEventKind =
  | 'DEPLOYMENT_STARTED'
  | 'DEPLOYMENT_SUCCESSFUL'
  | 'DEPLOYMENT_FAILURE'
  | 'DEPLOYMENT_CANCELLED'

export interface DeploymentEvent {
  kind: DeploymentEventKind
  organizationId: string
  projectId: string
  environmentId: string
  environmentMode: string
  serviceId: string
  serviceType: ServiceType
  serviceName: string
  deploymentId: string
  executionId: string
  state: string
  /** One sentence, only for failures. */
  reason: string | null
}

/** Events of this server alone, which the public API does not have. */
export const backupEventKinds = [
  'BACKUP_VERIFIED',
  'BACKUP_UNVERIFIED',
  'BACKUP_FAILED',
  'RESTORE_SUCCEEDED',
  'RESTORE_FAILED',
] as const

export interface BackupEvent {
  kind: (typeof backupEventKinds)[number]
  organizationId: string
  databaseId: string
  backupId: string
  /** Only for a restore. */
  restoreId: string | null
  /** One sentence; null for a success. */
  reason: string | null
}

/** Writes one outbox row for each enabled webhook that asked for this event. Call inside the change's transaction. */
export type EnqueueDeploymentEvent = (tx: Queryable, event: DeploymentEvent) => Promise<void>
