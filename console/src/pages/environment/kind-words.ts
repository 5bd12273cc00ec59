import type { Kind } from '../../api/queries.ts'

/** What the kinds of services are called. */
export const kindWords: Record<Kind, string> = {
  application: 'Application',
  container: 'Container',
  database: 'Database',
  job: 'Job',
  helm: 'Helm chart',
  terraform: 'Terraform',
  argocdApp: 'Argo CD',
}
