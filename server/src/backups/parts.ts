/** What the work on backups needs; wired once in wiring/services.ts. */
import type { Clusters } from '../clusters/clusters.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { WorkParts } from '../work/loop.ts'
import type { PlaceParts } from './places/open-place.ts'

export interface BackupParts extends WorkParts, Omit<PlaceParts, 'database' | 'sealer' | 'clock'> {
  database: Database
  sealer: Sealer
  clusters: Clusters
  /**
   * The id of this control plane. A restored copy of its database is another one: it never removes what the first one
   * has made since, and goes by what users delete alone.
   */
  writer: string
}
