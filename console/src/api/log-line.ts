/** One line of a log, wherever it was read. */
export interface Line {
  id: string
  /** Milliseconds since 1970. */
  at: number
  text: string
  isError: boolean
  /** Which instance or service wrote it. */
  from: string
  /** The service that it is about, if that differs from its writer. */
  about?: string
  /** The number of its deployment, if it is shown among other lines. */
  deployment?: number
}
