/** Where the credentials of a repository may be sent besides the repository itself. Pure. */
import type { GitLogin, GitSource } from '../builder.ts'

/** Whether the login of the repository at `own` may be sent to this address. */
export const mayReceive = ({ origins }: GitLogin, own: string, url: string): boolean =>
  (origins ?? [new URL(own).origin]).includes(new URL(url).origin)

/** The credentials of a source if an address may be sent them, else none. */
export const credentialsFor = (
  { url, credentials }: Pick<GitSource, 'url' | 'credentials'>,
  address: string,
): Pick<GitSource, 'credentials'> =>
  credentials !== undefined && mayReceive(credentials.reveal(), url, address) ? { credentials } : {}
