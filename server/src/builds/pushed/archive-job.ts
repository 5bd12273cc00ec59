/** What the thread that reads an archive is given, and what it answers at its end. */
import type { ArchiveLimits } from './tar-reader.ts'

export interface ArchiveJob {
  limits: ArchiveLimits
  /** Who made it, without line breaks and angle brackets. */
  author: string
  /** Seconds since 1970. */
  at: number
  message: string
  /** The commit that it follows; null for the first. */
  parent: string | null
}

/** A sentence for whoever sent the archive; null: all of it was read. */
export interface ArchiveEnd {
  refused: string | null
}
