/** Names whose first label is `*`: each applies to all names with one more label that have no entry of their own. */

export const isWildcard = (host: string): boolean => host.startsWith('*.')

/** The wildcard of a host: `*.a.example` for `www.a.example`. */
export const wildcardOf = (host: string): string => `*${host.slice(Math.max(0, host.indexOf('.')))}`

/** The part after `*.`, or the host itself. */
export const withoutStar = (host: string): string => (isWildcard(host) ? host.slice(2) : host)
