/** The abort reason of a cancel; any other reason means that the run is no longer ours. */
export class Canceled extends Error {
  constructor() {
    super('canceled')
    this.name = 'Canceled'
  }
}

export const isCancel = ({ signal }: { signal: AbortSignal }): boolean => signal.reason instanceof Canceled
