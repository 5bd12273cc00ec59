/** Requests to the HTTP interface of a DNS provider. */
import { type Outbound, OutboundFailed, type OutboundResponse } from '../../lib/net/outbound.ts'
import { DnsProblem } from './provider.ts'

interface ProviderRequest {
  method: 'GET' | 'POST' | 'DELETE'
  url: URL
  headers: Record<string, string>
  body?: string
}

const most = 262_144
const longestWaitMs = 86_400_000

/** Rejects with a `DnsProblem` if the answer is not one of the provider, or says to retry later. */
export const askProvider = async (
  outbound: Pick<Outbound, 'request'>,
  request: ProviderRequest,
  signal: AbortSignal,
): Promise<OutboundResponse> => {
  const answer = await outbound.request({ ...request, signal, maxResponseBytes: most }).catch((error: unknown) => {
    signal.throwIfAborted()
    throw new DnsProblem('silent', error instanceof OutboundFailed ? { cause: error.message } : {})
  })
  if (answer.status === 429) {
    const seconds = Number(answer.headers['retry-after'])
    const retryAfterMs = Number.isFinite(seconds) ? Math.min(Math.max(0, seconds * 1000), longestWaitMs) : undefined
    throw new DnsProblem('limited', { retryAfterMs })
  }
  if (answer.status >= 500 || (answer.status >= 300 && answer.status < 400) || answer.truncated)
    throw new DnsProblem('silent', { cause: answer.truncated ? 'its answer is too large' : `status ${answer.status}` })
  return answer
}
