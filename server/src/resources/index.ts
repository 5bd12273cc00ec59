/** The product's table of contents: every operation of the API, and every kind that can be deployed. */
import type { Operation } from '../api/operation.ts'
import type { DeployableKind } from '../deployments/deployments.ts'
import { genericVariableOperations } from '../facets/generic-variables.ts'
import { serviceLogSocket } from '../facets/logs.ts'
import { variableOperations } from '../facets/variables.ts'
import { apiTokenOperations } from './api-token.ts'
import { applicationKind, applicationOperations } from './application.ts'
import { clusterOperations } from './cluster.ts'
import { environmentOperations } from './environment.ts'
import { gitToken } from './git-token.ts'
import { organizationOperations } from './organization.ts'
import { project } from './project.ts'
import { webhookOperations } from './webhook.ts'

export const operations: readonly Operation[] = [
  ...organizationOperations,
  ...apiTokenOperations,
  ...clusterOperations,
  ...gitToken.operations,
  ...project.operations,
  ...environmentOperations,
  ...applicationOperations,
  ...variableOperations({ kind: 'project', word: 'Project' }),
  ...variableOperations({ kind: 'environment', word: 'Environment' }),
  ...variableOperations({ kind: 'application', word: 'Application', importId: 'importEnvironmentVariable' }),
  ...genericVariableOperations,
  ...webhookOperations,
  serviceLogSocket,
]

export const deployableKinds: readonly DeployableKind[] = [applicationKind]
