/** The caller asked to end; anything else that aborts a run means that it is no longer ours. */
export class Canceled extends Error {
  constructor() {
    super('canceled')
    this.name = 'Canceled'
  }
}

export const isCancel = ({ signal }: { signal: AbortSignal }): boolean => signal.reason instanceof Canceled
