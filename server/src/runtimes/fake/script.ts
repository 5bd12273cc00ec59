/**
 * The behavior of a fake instance, from its image's name: `fake/<kind>` or `fake/<kind>:<argument>`, with or without a
 * host; any other image serves.
 */
import type { Workload } from '../runtime.ts'

export type Behaviour =
  | { kind: 'serve' }
  /** Runs, and never answers. */
  | { kind: 'never-ready' }
  | { kind: 'crash'; exitCode: number }
  /** Answers after this time. */
  | { kind: 'slow'; ms: number }
  | { kind: 'oom' }
  /** `hold`, `converge` and `run` reject: the image does not exist. */
  | { kind: 'refuse' }
  /** Serves and logs `line 1` to `line 5` at once, then up to `line 200`, one every 20 ms. */
  | { kind: 'talk' }

export type Script = (of: Pick<Workload, 'image' | 'serviceId'>) => Behaviour | null

export const behaviourOf = (image: string): Behaviour => {
  const [, kind, argument] = /(?:^|\/)fake\/([a-z-]+)(?::(\d+)$|[:@]|$)/.exec(image) ?? []
  if (kind === 'crash') return { kind, exitCode: Number(argument ?? 1) }
  if (kind === 'slow') return { kind, ms: Number(argument ?? 1000) }
  if (kind === 'never-ready' || kind === 'oom' || kind === 'refuse' || kind === 'talk') return { kind }
  return { kind: 'serve' }
}
