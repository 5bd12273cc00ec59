/** A problem of a running instance. */
export interface Trouble {
  /** Whole sentences, for the service's status. */
  message: string
  /** Only replacing the instance helps. */
  needsNew: boolean
}
