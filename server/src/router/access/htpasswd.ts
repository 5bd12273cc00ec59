/**
 * Lines as `htpasswd` writes them, `name:hash`, separated by line breaks or commas. Hashes only: a password in plain
 * text is refused. An unknown algorithm must be refused when the line is read, because no login could succeed with it.
 */

export interface User {
  name: string
  hash: string
}

const mostUsers = 200
/** 2^10 rounds take a quarter of a second, and one thread compares for all services. */
const mostBcryptCost = 10

const kinds: readonly RegExp[] = [
  /^\{SHA\}[A-Za-z0-9+/]{27}=$/,
  /^\{SSHA\}[A-Za-z0-9+/]{28,80}={0,2}$/,
  /^\$(apr1|1)\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}$/,
  /^\$2[aby]\$(0[4-9]|1\d)\$[./A-Za-z0-9]{53}$/,
]

const isKnown = (hash: string): boolean =>
  kinds.some((kind) => kind.test(hash)) && !(hash.startsWith('$2') && Number(hash.slice(4, 6)) > mostBcryptCost)

/** The users, or the error, as the end of a sentence; never a part of the text. */
export const parseUsers = (text: string): User[] | string => {
  const lines = text
    .split(/[\r\n,]+/)
    .map((line) => line.trim())
    .filter((line) => line !== '')
  if (lines.length === 0) return 'is empty'
  if (lines.length > mostUsers) return `has more than ${mostUsers} lines`
  const users: User[] = []
  for (const [index, line] of lines.entries()) {
    const at = line.indexOf(':')
    if (at < 1 || !/^[\x20-\x7e]+$/.test(line)) return `has no \`name:hash\` in line ${index + 1}`
    const user = { name: line.slice(0, at), hash: line.slice(at + 1) }
    if (!isKnown(user.hash))
      return `has an unsupported hash in line ${index + 1}: use \`htpasswd -nbB\` (bcrypt, cost 4 to 10), apr1 or {SHA}`
    users.push(user)
  }
  return users
}
