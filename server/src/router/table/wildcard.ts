/** Names whose first label is `*`: they stand for every name of one more label that has no entry of its own. */

export const isWildcard = (host: string): boolean => host.startsWith('*.')

/** The wildcard that has this host: `*.a.example` for `www.a.example`. */
export const wildcardOf = (host: string): string => `*${host.slice(Math.max(0, host.indexOf('.')))}`

/** What comes after `*.`, or the host itself. */
export const withoutStar = (host: string): string => (isWildcard(host) ? host.slice(2) : host)
