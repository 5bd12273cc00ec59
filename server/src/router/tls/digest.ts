import { createHash } from 'node:crypto'
import type { HostTls } from '../router.ts'

/**
 * Equal for equal values, on whichever machine it is computed: a control plane compares its values with those of the
 * router.
 */
export const tlsDigest = ({ certificate, key, challenge, alpn }: HostTls): string => {
  const parts = [certificate, key, challenge?.token, challenge?.answer, alpn?.certificate, alpn?.key]
  return createHash('sha256')
    .update(JSON.stringify(parts.map((each) => each ?? null)))
    .digest('hex')
}
