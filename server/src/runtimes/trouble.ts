/** What is wrong with an instance that runs. */
export interface Trouble {
  /** Whole sentences, for the service's status. */
  message: string
  /** Only a new instance in its place helps. */
  needsNew: boolean
}
