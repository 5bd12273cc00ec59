/** What the streams of this process share; made once in wiring/services.ts. */

/** The environment's id; '' when notices may have been missed. */
export type OnChange = (environmentId: string) => void

export interface Changes {
  /** Subscribes to one environment, or to all (null). Rejects while the database is away. */
  subscribe(environmentId: string | null, onChange: OnChange): Promise<() => void>
}

export interface Streams {
  /** Notifies subscribers when an environment's status changed. */
  changes: Changes
  /**
   * A value that several streams share, by its key: made for the first of them, and made again for the next one once
   * it has called `over`. A key is always of the same kind of thing.
   */
  share<T extends object>(key: string, make: (over: () => void) => T): T
}
