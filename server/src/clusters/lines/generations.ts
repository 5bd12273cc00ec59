/** Counting up the generation of a database on a cluster, and asking whether another control plane is at work there. */
import type { Clock } from '../../lib/time/clock.ts'
import type { Mark, Marks } from '../../runtimes/marks.ts'
import type { Database } from '../../store/database.ts'
import { readGenerations, writeGeneration } from './rows.ts'

export interface GenerationsParts {
  database: Database
  writer: string
  clock: Clock
  challengeMs: number
  /** Of the cluster. */
  key: string
  marks: Marks
}

const askMs = 500

const same = (a: Mark, b: Mark): boolean => a.generation === b.generation && a.nonce === b.nonce

/** Without challenges. */
export const generationsIn = (all: readonly Mark[]): Mark[] => all.filter(({ generation }) => generation > 0)

/** Writes the next generation, here and on the cluster. False if another control plane was quicker. */
export const advance = async (
  { database, writer, key, marks }: GenerationsParts,
  all: readonly Mark[],
  signal: AbortSignal,
): Promise<boolean> => {
  const before = generationsIn(all)
  const mark = await writeGeneration(database, key, writer, before[0]?.generation ?? 0)
  if (!same(await marks.put(key, mark, signal), mark)) return false
  for (const old of before) if (old.generation < mark.generation) await marks.remove(key, old, signal)
  return true
}

/** Asks with a challenge: whoever is at work writes its next generation. True once nobody of another database has. */
export const isAlone = async (
  { database, writer, clock, challengeMs, key, marks }: GenerationsParts,
  newest: Mark,
  signal: AbortSignal,
): Promise<boolean> => {
  const challenge = { generation: 0, nonce: `${writer} ${clock.now().toISOString()}`, writer }
  for (let there = await marks.put(key, challenge, signal); !same(there, challenge); ) {
    // Of one that has died: whoever is at work answers ours as well.
    await marks.remove(key, there, signal)
    there = await marks.put(key, challenge, signal)
  }
  try {
    for (const untilMs = clock.monotonicMs() + challengeMs; clock.monotonicMs() < untilMs; ) {
      await clock.sleep(askMs, signal)
      const [first] = generationsIn(await marks.list(key, signal))
      if (first !== undefined && !same(first, newest)) return (await readGenerations(database, key)).knows(first)
    }
    return true
  } finally {
    await marks.remove(key, challenge, signal).catch(() => {})
  }
}
