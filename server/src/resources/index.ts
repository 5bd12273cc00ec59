/** The product's table of contents: every operation of the API, and every kind that can be deployed. */
import type { Operation } from '../api/operation.ts'
import type { DeployableKind } from '../deployments/deployments.ts'
import { genericVariableOperations } from '../facets/generic-variables.ts'
import { serviceLogSocket } from '../facets/logs.ts'
import { variableOperations } from '../facets/variables.ts'
import { allKinds, type Kind, kinds } from '../kinds.ts'
import { accountOperations } from './account.ts'
import { annotationsGroupOperations } from './annotations-group.ts'
import { apiTokenOperations } from './api-token.ts'
import { application } from './application.ts'
import { argocdApp } from './argocd-app.ts'
import { argocdConfigOperations } from './argocd-config.ts'
import { argocdDestinationOperations } from './argocd-destination.ts'
import { auditEventOperations } from './audit-event.ts'
import { catalogueOperations } from './catalogue.ts'
import { cloneOperations } from './clone.ts'
import { clusterOperations } from './cluster.ts'
import { container } from './container.ts'
import { containerRegistryOperations } from './container-registry.ts'
import { credentialsOperations } from './credentials.ts'
import { database } from './database.ts'
import { environmentOperations } from './environment.ts'
import { listServicesOf } from './environment-services.ts'
import { gitBrowsing } from './git-browsing.ts'
import { gitTokenOperations } from './git-token.ts'
import { helm } from './helm.ts'
import { helmRepositoryOperations } from './helm-repository.ts'
import { invitationOperations } from './invitation.ts'
import { job } from './job.ts'
import { labelsGroupOperations } from './labels-group.ts'
import { memberOperations } from './member.ts'
import { organizationOperations } from './organization.ts'
import { organizationLimits } from './organization-limits.ts'
import { project } from './project.ts'
import { registryImageOperations } from './registry-images.ts'
import { roleOperations } from './role.ts'
import type { Service } from './service.ts'
import { terraform } from './terraform.ts'
import { exportOf } from './terraform-export.ts'
import { webhookOperations } from './webhook.ts'

/** The file of each kind. */
export const serviceOf: Readonly<Record<Kind, Service>> = {
  application,
  container,
  database,
  job,
  helm,
  terraform,
  argocd_app: argocdApp,
}

const services: readonly Service[] = allKinds.map((kind) => serviceOf[kind])

const variablesOf = ({ definition: { kind, word } }: Service): Operation[] => {
  const importId = kinds[kind].variables?.importId ?? null
  return importId === null ? [] : variableOperations({ kind, word, importId })
}

export const operations: readonly Operation[] = [
  ...organizationOperations,
  organizationLimits,
  ...roleOperations,
  ...memberOperations,
  ...invitationOperations,
  ...accountOperations,
  ...apiTokenOperations,
  ...auditEventOperations,
  ...clusterOperations,
  ...argocdConfigOperations,
  ...argocdDestinationOperations,
  ...catalogueOperations,
  ...gitTokenOperations,
  ...gitBrowsing(services),
  ...containerRegistryOperations,
  ...registryImageOperations,
  ...helmRepositoryOperations,
  ...labelsGroupOperations,
  ...annotationsGroupOperations,
  ...credentialsOperations,
  ...project.operations,
  ...environmentOperations,
  ...services.flatMap((service) => service.operations),
  listServicesOf(services),
  ...cloneOperations(services),
  exportOf(services),
  ...variableOperations({ kind: 'project', word: 'Project' }),
  ...variableOperations({ kind: 'environment', word: 'Environment' }),
  ...services.flatMap(variablesOf),
  ...genericVariableOperations,
  ...webhookOperations,
  serviceLogSocket,
]

export const deployableKinds: readonly DeployableKind[] = services.map(({ deployable }) => deployable)
