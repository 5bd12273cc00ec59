/** Why a worker thread is gone before it has reported the end of its job. */

/** `memory`: its heap reached `resourceLimits`. `ended`: this process terminated it. */
export type ThreadDeath =
  | { kind: 'died'; of: 'memory' }
  | { kind: 'died'; of: 'ended' }
  | { kind: 'died'; of: 'crash'; message: string }

/**
 * Why a thread ended, from the error of its `error` event (undefined without one) and its exit code. Not for a thread
 * that was terminated.
 */
export const deathOf = (thrown: unknown, exitCode: number): ThreadDeath => {
  if ((thrown as { code?: unknown } | undefined)?.code === 'ERR_WORKER_OUT_OF_MEMORY')
    return { kind: 'died', of: 'memory' }
  const message = thrown === undefined ? `it exited with code ${exitCode}` : String(thrown)
  return { kind: 'died', of: 'crash', message }
}
