/** The product's table of contents: every operation of the API, and every kind that can be deployed. */
import type { Operation } from '../api/operations/operation.ts'
import type { DeployableKind } from '../deployments/deployments.ts'
import { logHistoryOperations } from '../facets/log-history/log-history.ts'
import { serviceLogSocket } from '../facets/log-socket.ts'
import { serviceMetricsSocket } from '../facets/metrics.ts'
import { genericVariableOperations } from '../facets/variables/generic.ts'
import { variableOperations } from '../facets/variables/variables.ts'
import { allKinds, type Kind, kinds } from '../kinds.ts'
import { argocdApp } from './argocd/app.ts'
import { argocdObjectOperations } from './argocd/app-objects.ts'
import { argocdConfigOperations } from './argocd/config.ts'
import { argocdDestinationOperations } from './argocd/destination.ts'
import { backupOperations } from './backups/backup.ts'
import { restoreOperations } from './backups/restore.ts'
import { backupScheduleOperations } from './backups/schedule.ts'
import { backupStorageOperations } from './backups/storage.ts'
import { catalogueOperations } from './catalogue/catalogue.ts'
import { clusterOperations } from './cluster/cluster.ts'
import { credentialsOperations } from './cluster/credentials.ts'
import { listCharts } from './helm/charts.ts'
import { helm } from './helm/helm.ts'
import { helmRepositoryOperations } from './helm/repository.ts'
import { chartSourceOperations } from './helm/sources.ts'
import { application } from './kinds/application.ts'
import { container } from './kinds/container.ts'
import { database } from './kinds/database.ts'
import { job } from './kinds/job.ts'
import { accountOperations } from './organization/account.ts'
import { annotationsGroupOperations } from './organization/annotations-group.ts'
import { apiTokenOperations } from './organization/api-token.ts'
import { auditEventOperations } from './organization/audit-event.ts'
import { billingOperations } from './organization/billing.ts'
import { organizationChanges } from './organization/changes.ts'
import { organizationCleanUp } from './organization/clean-up.ts'
import { invitationOperations } from './organization/invitation.ts'
import { labelsGroupOperations } from './organization/labels-group.ts'
import { organizationLimits } from './organization/limits.ts'
import { memberOperations } from './organization/member.ts'
import { organizationOperations } from './organization/organization.ts'
import { roleOperations } from './organization/role.ts'
import { webhookOperations } from './organization/webhook.ts'
import { listPreviews } from './previews/list.ts'
import { cloneOperations } from './project/clone.ts'
import { environmentOperations } from './project/environment.ts'
import { listServicesOf } from './project/environment-services.ts'
import { lifecycleTemplateOperations } from './project/lifecycle-templates.ts'
import { project } from './project/project.ts'
import { containerRegistryOperations } from './repositories/container-registry.ts'
import { gitBrowsing } from './repositories/git-browsing.ts'
import { gitFileOperations } from './repositories/git-files.ts'
import { gitTokenOperations } from './repositories/git-token.ts'
import { gitWebhookOperations } from './repositories/git-webhook.ts'
import { gitWebhookStatus } from './repositories/git-webhook-status.ts'
import { registryImageOperations } from './repositories/registry-images.ts'
import type { Service } from './service/service.ts'
import { exportOf } from './terraform/export.ts'
import { listTerraformResources } from './terraform/resources.ts'
import { terraform } from './terraform/terraform.ts'
import { listTerraformVersions } from './terraform/versions.ts'

export const serviceOf: Readonly<Record<Kind, Service>> = {
  application,
  container,
  database,
  job,
  helm,
  terraform,
  argocd_app: argocdApp,
}

export const services: readonly Service[] = allKinds.map((kind) => serviceOf[kind])

const variablesOf = ({ definition: { kind, noun } }: Service): Operation[] => {
  const importId = kinds[kind].variables?.importId ?? null
  return importId === null ? [] : variableOperations({ kind, word: noun, importId })
}

export const operations: readonly Operation[] = [
  ...organizationOperations,
  organizationLimits,
  organizationCleanUp,
  organizationChanges,
  ...roleOperations,
  ...memberOperations,
  ...invitationOperations,
  ...accountOperations,
  ...billingOperations,
  ...apiTokenOperations,
  ...auditEventOperations,
  ...clusterOperations,
  ...argocdConfigOperations,
  ...argocdDestinationOperations,
  ...argocdObjectOperations,
  ...catalogueOperations,
  ...gitTokenOperations,
  ...gitBrowsing(services),
  ...containerRegistryOperations,
  ...registryImageOperations,
  ...helmRepositoryOperations,
  ...backupStorageOperations,
  listCharts,
  ...chartSourceOperations,
  ...labelsGroupOperations,
  ...annotationsGroupOperations,
  ...credentialsOperations,
  ...project.operations,
  ...environmentOperations,
  ...services.flatMap((service) => service.operations),
  listServicesOf(services),
  ...cloneOperations(services),
  exportOf(services),
  ...backupOperations,
  ...restoreOperations,
  ...backupScheduleOperations,
  ...variableOperations({ kind: 'project', word: 'Project' }),
  ...variableOperations({ kind: 'environment', word: 'Environment' }),
  ...services.flatMap(variablesOf),
  ...genericVariableOperations,
  ...webhookOperations,
  serviceLogSocket,
  serviceMetricsSocket,
  ...logHistoryOperations,
  ...lifecycleTemplateOperations,
  ...gitFileOperations,
  ...gitWebhookOperations,
  ...gitWebhookStatus(services),
  listPreviews,
  listTerraformResources,
  listTerraformVersions,
]

export const deployableKinds: readonly DeployableKind[] = services.map(({ deployable }) => deployable)
