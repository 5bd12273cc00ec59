/** Certificates that end soon, have ended, or cannot be ordered. */
import { failed, listed, type Problem, topic, warning } from '../lib/finding.ts'
import type { Queryable } from '../store/database.ts'

export interface CertificateFacts {
  host: string
  isUploaded: boolean
  /** Null: none is served yet. */
  notBefore: Date | null
  notAfter: Date | null
  /** Why there is none, or no newer one. */
  problem: string | null
}

const most = 1000

/** The ones that end first, and those without any. */
export const readCertificates = (db: Queryable): Promise<CertificateFacts[]> =>
  db.query<CertificateFacts>(
    `select * from (
       select host, false as "isUploaded", not_before as "notBefore", not_after as "notAfter",
         problem ->> 'message' as problem from certificate
       union all select host, true, not_before, not_after, null from uploaded_certificate
     ) found order by "notAfter" nulls first, host limit ${most}`,
  )

const topicOf = topic('certificates', 'Certificates')

/** Renewed at a third of their lifetime: what is left of a certificate below this share is not as intended. */
const lateShare = 0.25

const isEnded = ({ notAfter }: CertificateFacts, now: Date): boolean => notAfter !== null && notAfter <= now

const isLate = ({ notBefore, notAfter }: CertificateFacts, now: Date): boolean =>
  notBefore !== null &&
  notAfter !== null &&
  notAfter.getTime() - now.getTime() < (notAfter.getTime() - notBefore.getTime()) * lateShare

const hosts = (of: readonly CertificateFacts[]): string => listed(of.map(({ host }) => host))

const reasons = (of: readonly CertificateFacts[]): string => {
  const [first] = of.flatMap(({ problem }) => (problem === null ? [] : [problem]))
  return first === undefined ? '' : ` The reason for the first: ${first}`
}

const renew =
  'Upload the next certificate, or see docs/guides/tls.md for what orders need: a DNS record, and port 80 or 443.'

const problemsOf = (facts: readonly CertificateFacts[], now: Date): Problem[] => {
  const ended = facts.filter((each) => isEnded(each, now))
  const rest = facts.filter((each) => !isEnded(each, now))
  const missing = rest.filter(({ notAfter, problem }) => notAfter === null && problem !== null)
  const late = rest.filter((each) => isLate(each, now))
  const failing = rest.filter((each) => each.notAfter !== null && each.problem !== null && !late.includes(each))
  return [
    ...(ended.length === 0 ? [] : [failed(`Certificates have expired: ${hosts(ended)}.${reasons(ended)}`, renew)]),
    ...(missing.length === 0
      ? []
      : [failed(`No certificate could be ordered for ${hosts(missing)}.${reasons(missing)}`, renew)]),
    ...(late.length === 0 ? [] : [warning(`Certificates end soon: ${hosts(late)}.${reasons(late)}`, renew)]),
    ...(failing.length === 0
      ? []
      : [warning(`Certificates could not be renewed yet: ${hosts(failing)}.${reasons(failing)}`, renew)]),
  ]
}

export const judgeCertificates = (facts: readonly CertificateFacts[], hasTls: boolean, now: Date) => {
  if (!hasTls) return topicOf.skipped('The router serves no HTTPS (SLIPWAY_ROUTER_TLS_PORT is not set).')
  if (facts.length === 0) return topicOf.ok('No host has a certificate yet.')
  const served = facts.filter(({ notAfter }) => notAfter !== null)
  const [first] = served
  const waiting = facts.length - served.length
  const words =
    first === undefined
      ? []
      : [`${served.length} are served; the first ends on ${first.notAfter!.toISOString().slice(0, 10)}.`]
  const ordered = waiting === 0 ? [] : [`${waiting} are being ordered.`]
  return topicOf.judge(problemsOf(facts, now), [...words, ...ordered].join(' '))
}
