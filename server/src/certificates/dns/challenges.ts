/**
 * Challenges of the kind DNS-01. Promises that a record is stored before it is set, so that an unneeded one is removed
 * even if the process that set it died; and that an answer is sent to the CA only when the name servers of the domain
 * have the record. A provider that does not answer is asked again until the record is gone, for 30 days.
 */
import type { Log } from '../../lib/log.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { withoutStar } from '../../router/table/wildcard.ts'
import type { Database } from '../../store/database.ts'
import { DnsProblem, type DnsProvider, type TxtRecord } from './provider.ts'
import { claimLeftovers, forgetOldRecords, forgetRecord } from './rows.ts'
import type { NameServers } from './visible.ts'

interface DnsChallengeParts {
  database: Database
  provider: DnsProvider
  nameServers: NameServers
  clock: Clock
  log: Pick<Log, 'warn'>
}

export interface DnsChallenges {
  /** Rejects with a `DnsProblem` if nothing can be proved for this host. */
  check(host: string, signal: AbortSignal): Promise<void>
  /** Resolves when the name servers answer this for the host. Rejects with a `DnsProblem`. */
  publish(host: string, value: string, signal: AbortSignal): Promise<void>
  /** Removes the records that no order needs any more. Rejects if one is left. */
  sweep(signal: AbortSignal): Promise<void>
}

const pausesMs = [1, 2, 3, 5, 10].map((seconds) => seconds * 1000)
const deadlineMs = 5 * 60_000
/** Another server may have removed it as a leftover of an earlier order with the same value. */
const repeatMs = 60_000

/** `*.a.example` is proved with the name of `a.example`. */
export const challengeName = (host: string): string => `_acme-challenge.${withoutStar(host)}`

/** A server that does not answer is ignored, unless none answers. */
const isVisible = async ({ nameServers }: DnsChallengeParts, { name, value }: TxtRecord): Promise<boolean> => {
  const servers = await nameServers.of(name).catch(() => [])
  const texts = await Promise.all(servers.map((server) => nameServers.texts(server, name)))
  const answers = texts.filter((each) => each !== null)
  return answers.length > 0 && answers.every((each) => each.includes(value))
}

const waitUntilVisible = async (parts: DnsChallengeParts, record: TxtRecord, signal: AbortSignal): Promise<void> => {
  const { provider, clock } = parts
  const begin = clock.now().getTime()
  let setAt = begin
  for (let turn = 0; !(await isVisible(parts, record)); turn += 1) {
    const now = clock.now().getTime()
    if (now - begin > deadlineMs) throw new DnsProblem('hidden')
    if (now - setAt > repeatMs) {
      await provider.set(record, signal)
      setAt = now
    }
    await clock.sleep(pausesMs[Math.min(turn, pausesMs.length - 1)]!, signal)
  }
}

export const createDnsChallenges = (parts: DnsChallengeParts): DnsChallenges => {
  const { database, provider, clock, log } = parts
  return {
    check: (host, signal) => provider.check(challengeName(host), signal),
    async publish(host, value, signal) {
      const record = { name: challengeName(host), value }
      await provider.set(record, signal)
      await waitUntilVisible(parts, record, signal)
    },
    async sweep(signal) {
      await forgetOldRecords(database, clock.now())
      let failed: unknown
      for (const leftover of await claimLeftovers(database, clock.now())) {
        try {
          await provider.remove(leftover, signal)
          await forgetRecord(database, leftover.id)
        } catch (error) {
          signal.throwIfAborted()
          log.warn({ record: leftover.name, why: (error as Error).message }, 'a DNS record of a challenge is left')
          failed = error
        }
      }
      if (failed !== undefined) throw failed
    },
  }
}
