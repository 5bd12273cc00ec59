/** Redirects of answers that we opened: where they may lead. Pure. */

const statuses = new Set([301, 302, 303, 307, 308])

export const isRedirect = (status: number): boolean => statuses.has(status)

/** The address that an answer redirects to; null if it does not redirect, or leads from https to anything else. */
export const redirectTarget = (from: URL, location: string | undefined): URL | null => {
  const target = URL.parse(location ?? '', from.href)
  return target === null || (from.protocol === 'https:' && target.protocol !== 'https:') ? null : target
}
