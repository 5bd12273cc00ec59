import { createHash } from 'node:crypto'
import type { HostTls } from '../router.ts'

/** The same for the same value, whoever computes it: a control plane compares what it wants with what is there. */
export const tlsDigest = ({ certificate, key, challenge, alpn }: HostTls): string => {
  const parts = [certificate, key, challenge?.token, challenge?.answer, alpn?.certificate, alpn?.key]
  return createHash('sha256')
    .update(JSON.stringify(parts.map((each) => each ?? null)))
    .digest('hex')
}
