import type { Rollout } from '../runtime.ts'

/** For calls without a rollout: each step is done, once. */
export const unwatched = (signal: AbortSignal): Rollout => ({
  step: (_name, _deadlineMs, work) => work(signal),
  report: () => {},
  serving: async () => {},
})
