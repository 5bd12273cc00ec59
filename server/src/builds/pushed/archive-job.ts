/** The input of the thread that reads an archive, and its final message. */
import type { ArchiveLimits } from './tar-reader.ts'

export interface ArchiveJob {
  limits: ArchiveLimits
  /** Name of the author, without line breaks and angle brackets. */
  author: string
  /** Seconds since 1970. */
  at: number
  message: string
  parent: string | null
}

/** A sentence for the sender of the archive; null: all of it was read. */
export interface ArchiveEnd {
  refused: string | null
}
