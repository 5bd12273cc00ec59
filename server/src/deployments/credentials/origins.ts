/**
 * Where a git token may be sent: the origins (scheme, host and port) of repositories that its row lists, and single
 * repositories elsewhere that an administrator of the organization has used it for. Pure. A token is an HTTP password:
 * it is never sent over ssh, and an address such as `git@host:` cannot use it.
 */

/** Hosts whose API has an origin of its own. */
const repositoryOrigins: Readonly<Record<string, string>> = {
  'https://api.github.com': 'https://github.com',
  'https://api.bitbucket.org': 'https://bitbucket.org',
}

export const originOf = (url: string): string | null => {
  const parsed = URL.parse(url)
  return parsed === null || !/^https?:$/.test(parsed.protocol) ? null : parsed.origin
}

export const usualOrigins = (apiUrl: string): string[] => {
  const origin = originOf(apiUrl)
  return origin === null ? [] : [repositoryOrigins[origin] ?? origin]
}

/** The two lists of a token's row. */
export interface TokenReach {
  origins: readonly string[]
  /** For repositories elsewhere. */
  urls: readonly string[]
}

/** SQL for the lists in the row of a git token. */
export const reachSql = (row: string): string =>
  `jsonb_build_object('origins', coalesce(${row}.spec -> 'repository_origins', '[]'),
    'urls', coalesce(${row}.spec -> 'repository_urls', '[]'))`

export const reaches = ({ origins, urls }: TokenReach, url: string): boolean => {
  const origin = originOf(url)
  return origin !== null && (origins.includes(origin) || urls.includes(url))
}
