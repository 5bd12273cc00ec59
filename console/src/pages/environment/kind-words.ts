import type { Kind } from '../../api/queries.ts'

/** The names of the kinds of services. */
export const kindWords: Record<Kind, string> = {
  application: 'Application',
  container: 'Container',
  database: 'Database',
  job: 'Job',
  helm: 'Helm chart',
  terraform: 'Terraform',
  argocdApp: 'Argo CD',
}
