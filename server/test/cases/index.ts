/** Every case of the coverage test. */
import { applicationCases } from './application.ts'
import { argocdAppCases } from './argocd-app.ts'
import type { Cases } from './case.ts'
import { cloneCases } from './clone.ts'
import { clusterCases } from './cluster.ts'
import { containerCases } from './container.ts'
import { coreCases } from './core.ts'
import { databaseCases } from './database.ts'
import { deploymentRuleCases } from './deployment-rule.ts'
import { deploymentStageCases } from './deployment-stage.ts'
import { environmentCases } from './environment.ts'
import { helmCases } from './helm.ts'
import { identityCases } from './identity.ts'
import { jobCases } from './job.ts'
import { liveCases } from './live.ts'
import { organizationResourceCases } from './organization-resources.ts'
import { releaseCases } from './releases.ts'
import { serviceFacetCases } from './service-facets.ts'
import { terraformCases } from './terraform.ts'
import { variableCases } from './variables.ts'
import { webhookCases } from './webhook.ts'

export const allCases: readonly Cases[] = [
  coreCases,
  identityCases,
  clusterCases,
  cloneCases,
  deploymentRuleCases,
  deploymentStageCases,
  environmentCases,
  applicationCases,
  containerCases,
  databaseCases,
  jobCases,
  liveCases,
  helmCases,
  terraformCases,
  argocdAppCases,
  variableCases,
  releaseCases,
  serviceFacetCases,
  webhookCases,
  organizationResourceCases,
]
