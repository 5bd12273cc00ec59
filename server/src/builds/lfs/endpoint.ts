/** Where the LFS server of a repository is. Pure: `.lfsconfig` was written by a stranger. */
import { internalIdIn, isValidGitUrl } from '../git/names.ts'
import { webAddress } from '../git/submodule-names.ts'

const beside = (repository: string): string => {
  const plain = repository.replace(/\/+$/, '')
  return `${plain}${plain.endsWith('.git') ? '' : '.git'}/info/lfs`
}

/** Https, or http for a repository that is itself read by http. */
const isAllowed = (repository: string, url: string): boolean =>
  isValidGitUrl(url) && (url.startsWith('https:') || repository.startsWith('http:'))

/**
 * The address of the LFS API. `configured` is `lfs.url` of `.lfsconfig`, null without. Null: the repository has none,
 * because it is on this server; `refused`: `.lfsconfig` names an address that cannot be used.
 */
export const lfsEndpoint = (repository: string, configured: string | null): string | null | 'refused' => {
  if (configured === null) return internalIdIn(repository) === null ? beside(repository) : null
  const web = webAddress(repository, configured)
  if (web !== null) return beside(web)
  return isAllowed(repository, configured) ? configured.replace(/\/+$/, '') : 'refused'
}
