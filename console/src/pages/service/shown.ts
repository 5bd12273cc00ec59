/** What the pages of a service are given. */
import type * as read from '../../api/queries.ts'

export interface Shown {
  service: read.Service
  status: read.ServiceStatus | undefined
}
