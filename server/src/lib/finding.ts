/** What a check of the doctor found: one sentence or more for the operator, and what to do about it. */

export const findingStates = ['OK', 'WARNING', 'FAILED', 'SKIPPED'] as const
type FindingState = (typeof findingStates)[number]

export interface Finding {
  id: string
  title: string
  state: FindingState
  message: string
  /** What to do; null if nothing needs to be done. */
  mending: string | null
}

export interface Problem {
  /** `FAILED`: something does not work now. `WARNING`: it works, but may not for long, or not as intended. */
  state: 'WARNING' | 'FAILED'
  message: string
  mending: string
}

export interface Topic {
  id: string
  title: string
  ok(message: string): Finding
  skipped(message: string): Finding
  /** All problems in one finding with the worst state; `fine` if there are none. */
  judge(problems: readonly Problem[], fine: string): Finding
}

export const warning = (message: string, mending: string): Problem => ({ state: 'WARNING', message, mending })

export const failed = (message: string, mending: string): Problem => ({ state: 'FAILED', message, mending })

const joined = (texts: readonly string[]): string => [...new Set(texts)].join(' ')

export const topic = (id: string, title: string): Topic => ({
  id,
  title,
  ok: (message) => ({ id, title, state: 'OK', message, mending: null }),
  skipped: (message) => ({ id, title, state: 'SKIPPED', message, mending: null }),
  judge(problems, fine) {
    if (problems.length === 0) return { id, title, state: 'OK', message: fine, mending: null }
    const failures = problems.filter(({ state }) => state === 'FAILED')
    const sorted = [...failures, ...problems.filter(({ state }) => state !== 'FAILED')]
    return {
      id,
      title,
      state: failures.length > 0 ? 'FAILED' : 'WARNING',
      message: joined(sorted.map(({ message }) => message)),
      mending: joined(sorted.map(({ mending }) => mending)),
    }
  },
})

const mostListed = 5

/** The first few of these as text: `a, b and 3 more`. */
export const listed = (words: readonly (string | number)[]): string => {
  const shown = words.slice(0, mostListed)
  const more = words.length - shown.length
  if (more > 0) return `${shown.join(', ')} and ${more} more`
  return shown.length < 2 ? String(shown[0] ?? '') : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`
}
