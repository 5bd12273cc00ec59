/**
 * Who may pass with which password (basic authentication). Promises: a name that is unknown takes as long as a wrong
 * password; what was compared before is not compared again; a flood of attempts at one service is cut off, and never
 * holds up requests of others, because slow hashes are compared in a thread.
 */
import { createHash } from 'node:crypto'
import { Worker } from 'node:worker_threads'
import type { User } from './htpasswd.ts'
import type { Question } from './password-thread.ts'
import { isSlow, matches } from './passwords.ts'

/** True: come in; false: not with this; null: too many others are being compared. */
export type Verdict = boolean | null

export interface Logins {
  check(authorization: string | undefined): Verdict | Promise<Verdict>
}

const program = new URL('./password-thread.ts', import.meta.url)
const mostWaiting = 8
const mostRemembered = 1000
const mostPasswordBytes = 1024

let thread: Worker | undefined
let lastId = 0
const asked = new Map<number, (isRight: Verdict) => void>()

const startThread = (): Worker => {
  const worker = new Worker(program, { env: {}, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: 32 } })
  worker.on('message', ({ id, isRight }: { id: number; isRight: boolean }) => {
    asked.get(id)?.(isRight)
    asked.delete(id)
  })
  worker.on('error', () => {})
  worker.on('exit', () => {
    thread = undefined
    for (const settle of asked.values()) settle(null)
    asked.clear()
  })
  // It must not keep the process alive; a listener added later would.
  worker.unref()
  return worker
}

const askThread = async (hash: string, password: string): Promise<Verdict> => {
  const { promise, resolve } = Promise.withResolvers<Verdict>()
  thread ??= startThread()
  const question: Question = { id: ++lastId, hash, password }
  asked.set(question.id, resolve)
  thread.postMessage(question)
  return promise
}

const readBasic = (header: string): { name: string; password: string } | null => {
  const match = /^basic +([A-Za-z0-9+/=]+) *$/i.exec(header)
  if (match === null) return null
  const text = Buffer.from(match[1]!, 'base64').toString()
  const at = text.indexOf(':')
  return at < 0 ? null : { name: text.slice(0, at), password: text.slice(at + 1) }
}

export const createLogins = (users: readonly User[]): Logins => {
  const byName = new Map(users.map(({ name, hash }) => [name, hash]))
  const someHash = users[0]?.hash ?? ''
  const remembered = new Map<string, Verdict | Promise<Verdict>>()
  let waiting = 0

  const remember = (key: string, verdict: Verdict | Promise<Verdict>): void => {
    const [oldest] = remembered.keys()
    if (remembered.size >= mostRemembered && !remembered.has(key)) remembered.delete(oldest!)
    remembered.set(key, verdict)
  }

  const compareSlowly = async (key: string, hash: string, password: string, isKnown: boolean): Promise<Verdict> => {
    waiting++
    const isRight = await askThread(hash, password).catch(() => null)
    waiting--
    const verdict = isRight === null ? null : isRight && isKnown
    if (verdict === null) remembered.delete(key)
    else remember(key, verdict)
    return verdict
  }

  return {
    check(authorization) {
      const sent = authorization === undefined ? null : readBasic(authorization)
      if (sent === null || sent.password.length > mostPasswordBytes) return false
      const key = createHash('sha256').update(authorization!).digest('base64')
      const before = remembered.get(key)
      if (before !== undefined) return before
      const known = byName.get(sent.name)
      const hash = known ?? someHash
      if (!isSlow(hash)) {
        const isRight = matches(hash, sent.password)
        return isRight && known !== undefined
      }
      if (waiting >= mostWaiting) return null
      const verdict = compareSlowly(key, hash, sent.password, known !== undefined)
      remember(key, verdict)
      return verdict
    },
  }
}
