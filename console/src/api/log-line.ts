/** One line of a log, wherever it was read. */
export interface Line {
  id: string
  /** Milliseconds since 1970. */
  at: number
  text: string
  isError: boolean
  /** Which instance or service wrote it. */
  from: string
  /** The service that it is about, where that is not who wrote it. */
  about?: string
  /** The number of the deployment that it is of, where that stands among other lines. */
  deployment?: number
}
