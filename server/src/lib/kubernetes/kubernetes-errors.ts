/** The error of a failed request to the API of a Kubernetes cluster, and its explanation for a user. */
import { causesOf, explainCause, isCertificateError } from '../net/connection-errors.ts'
import { sanitizeText } from '../sanitize-text.ts'

/** `status` is that of the API server's answer; 0 if it gave none that can be read. The message is a sentence. */
export class KubernetesError extends Error {
  readonly status: number

  constructor(status: number, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'KubernetesError'
    this.status = status
  }
}

/** An answer is longer than allowed: the caller can ask for a shorter one. */
export class TooLongError extends KubernetesError {
  constructor() {
    super(0, 'The API server of the cluster sends answers that are too long.')
  }
}

const what = 'the API server of the cluster'
const longestReason = 200

/** The reason given by the API server: untrusted text, shown to those whose cluster it is. */
const reasonIn = (body: unknown): string => {
  const message = (body as { message?: unknown } | null)?.message
  if (typeof message !== 'string' || message === '') return '.'
  return `: ${sanitizeText(message).replaceAll(/\s+/g, ' ').slice(0, longestReason)}`
}

const words: Record<number, string> = {
  401: 'The cluster does not accept the credentials of the kubeconfig: they are wrong, or have expired.',
  429: 'The API server of the cluster has too many requests at the moment.',
}

export const refusedBy = (status: number, body: unknown): KubernetesError => {
  const known = words[status]
  if (known !== undefined) return new KubernetesError(status, known)
  if (status === 403) return new KubernetesError(status, `The cluster does not allow this${reasonIn(body)}`)
  return new KubernetesError(status, `The API server of the cluster answered with status ${status}${reasonIn(body)}`)
}

export const unanswered = (cause: unknown): KubernetesError => {
  for (const each of causesOf(cause)) {
    const found = explainCause(each, what)
    if (found !== null) return new KubernetesError(0, found, cause)
  }
  return new KubernetesError(0, 'The API server of the cluster does not answer.', cause)
}

/** Whether the cluster was reached, but refused the login or is not the same cluster as before. */
export const isRefusedAccess = (error: KubernetesError): boolean =>
  error.status === 401 || error.status === 403 || [...causesOf(error.cause)].some(isCertificateError)
