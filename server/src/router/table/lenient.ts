/**
 * Lines of a response's head may end in a line feed alone: every CGI script of busybox writes them so, and browsers,
 * curl and nginx accept it. Undici offers no setting for it, but its parser has one. Only for responses: a request must
 * have one reading only, whereas what a target answers is that target's own.
 */
import { createRequire } from 'node:module'

const { kSocket, kParser } = createRequire(import.meta.url)('undici/lib/core/symbols.js') as Record<
  'kSocket' | 'kParser',
  symbol
>

interface Parser {
  ptr: number
  llhttp: { llhttp_set_lenient_optional_cr_before_lf(parser: number, isOn: number): void }
}

/** Of one connected client of a pool. */
export const acceptBareLineFeeds = (client: unknown): void => {
  const socket = (client as Record<symbol, unknown> | undefined)?.[kSocket] as Record<symbol, unknown> | undefined
  const parser = socket?.[kParser] as Parser | undefined
  parser?.llhttp.llhttp_set_lenient_optional_cr_before_lf(parser.ptr, 1)
}
