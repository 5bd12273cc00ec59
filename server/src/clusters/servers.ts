/**
 * The other servers on this database: which are alive, and asking them something.
 *
 * Promises: a server is counted as long as it renews its lease, and not after an orderly stop; a question is answered
 * by all live servers, or its time runs out. When the process dies: it is counted until its lease has run out, and
 * questions to it run out too.
 */

import { waitAtMost } from '../lib/concurrency/waiting.ts'
import { newId } from '../lib/ids.ts'
import type { Database } from '../store/database.ts'
import { leaseEnd, leaseMs } from '../work/lease.ts'
import { createLoop, type Loop, type WorkParts } from '../work/loop.ts'

/** A question to the other servers, as JSON; with its answer it must fit into a notification (8000 bytes). */
export type Question = Record<string, unknown>

export interface Servers {
  others(): Promise<string[]>
  /** Asks these; returns the answers that arrived in time. */
  ask(others: readonly string[], question: Question, timeoutMs: number, signal?: AbortSignal): Promise<number[]>
  /** From now on this server is counted, and answers questions. `missed`: questions may have been missed. */
  start(answer: (question: Question) => Promise<number>, missed: () => void): Promise<void>
  stop(): Promise<void>
}

export interface ServersParts extends WorkParts {
  database: Database
}

interface Asked {
  from: string
  id: string
  question: Question
}

interface Answered {
  from: string
  to: string
  id: string
  answer: number
}

interface Waiting {
  missing: Set<string>
  answers: number[]
  done: PromiseWithResolvers<void>
}

const renewMs = 4000
const [questions, answers] = ['slipway_servers', 'slipway_servers_answer']

export const createServers = (parts: ServersParts): Servers => {
  const { database, clock, log } = parts
  const own = newId()
  const waiting = new Map<string, Waiting>()
  const leaves: (() => void)[] = []
  let presence: Loop | undefined

  const notify = (channel: string, what: Asked | Answered): Promise<unknown> =>
    database.query('select pg_notify($1, $2)', [channel, JSON.stringify(what)])
  const hearAnswer = (text: string): void => {
    if (text === '') return
    const { from, to, id, answer } = JSON.parse(text) as Answered
    const asked = to === own ? waiting.get(id) : undefined
    if (asked === undefined || !asked.missing.delete(from)) return
    asked.answers.push(answer)
    if (asked.missing.size === 0) asked.done.resolve()
  }
  const hear = async (text: string, answer: (question: Question) => Promise<number>): Promise<void> => {
    const { from, id, question } = JSON.parse(text) as Asked
    if (from !== own) await notify(answers, { from: own, to: from, id, answer: await answer(question) })
  }
  const renew = async (): Promise<void> => {
    await database.query(
      `insert into server (id, lease_until) values ($1, ${leaseEnd(2)})
       on conflict (id) do update set lease_until = excluded.lease_until`,
      [own, leaseMs],
    )
    await database.query(`delete from server where lease_until < clock_timestamp() - interval '1 hour'`)
  }

  return {
    async others() {
      const rows = await database.query<{ id: string }>(
        'select id from server where id <> $1 and lease_until > clock_timestamp()',
        [own],
      )
      return rows.map(({ id }) => id)
    },
    async ask(others, question, timeoutMs, signal) {
      if (others.length === 0) return []
      const id = newId()
      const asked: Waiting = { missing: new Set(others), answers: [], done: Promise.withResolvers() }
      waiting.set(id, asked)
      try {
        await notify(questions, { from: own, id, question })
        await waitAtMost(clock, timeoutMs, asked.done.promise, signal)
        if (asked.missing.size > 0) log.warn({ servers: [...asked.missing] }, 'other servers have not answered')
        return asked.answers
      } finally {
        waiting.delete(id)
      }
    },
    async start(answer, missed) {
      leaves.push(await database.listen(answers, hearAnswer))
      const onQuestion = (text: string): void => {
        if (text === '') missed()
        else
          hear(text, answer).catch((error: unknown) =>
            log.warn({ err: error }, 'a request of another server could not be answered'),
          )
      }
      leaves.push(await database.listen(questions, onQuestion))
      await renew()
      const failed = 'other servers may consider this one dead'
      presence = createLoop(parts, { name: 'presence', periodMs: renewMs, waits: true, failed, run: renew })
    },
    async stop() {
      await presence?.stop()
      for (const leave of leaves.splice(0)) leave()
      await database.query('delete from server where id = $1', [own]).catch(() => {})
    },
  }
}
