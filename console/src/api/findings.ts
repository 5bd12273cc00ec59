/** What the server has found wrong with its own installation: for its operator only. */
import { Problem, send } from './client.ts'

export interface Finding {
  id: string
  title: string
  state: 'OK' | 'WARNING' | 'FAILED' | 'SKIPPED'
  message: string
  /** What to do; null if nothing needs to be done. */
  mending: string | null
}

/** A server that is not ready has findings too. */
export const readFindings = async (): Promise<Finding[]> => {
  const answer = await send(new Request(new URL('/readyz?verbose', location.origin)))
  const body = (await answer.json().catch(() => ({}))) as { findings?: Finding[]; message?: string }
  if (body.findings === undefined) throw new Problem(answer.ok ? 403 : answer.status, body)
  return body.findings
}
