/**
 * Names that a `.gitmodules` file may contain. Pure: the file is untrusted. A path stays inside the repository, and a
 * URL is a plain https or http address: nothing in it is an option, a file, a command or another transport.
 */
import { isValidBranch, isValidGitUrl } from './names.ts'

export interface Submodule {
  path: string
  url: string
  branch: string | null
}

export const maxSubmodules = 100

/** `name\nvalue` records of `git config -z --get-regexp`: the last value of a key counts. */
export const parseModules = (text: string): Submodule[] => {
  const found = new Map<string, Record<string, string>>()
  for (const record of text.split('\0')) {
    const end = record.indexOf('\n')
    const match = /^submodule\.(.*)\.(path|url|branch)$/s.exec(end === -1 ? record : record.slice(0, end))
    if (match === null || end === -1) continue
    const fields = found.get(match[1]!) ?? {}
    fields[match[2]!] = record.slice(end + 1)
    found.set(match[1]!, fields)
  }
  return [...found.values()].flatMap(({ path, url, branch = null }) =>
    path === undefined || url === undefined ? [] : [{ path, url, branch }],
  )
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const unsafe = /[\u0000-\u001f\u007f\\]/

/** Whether a path is inside the repository, and not one of git's own. */
export const isInside = (path: string): boolean =>
  path.length <= 1024 &&
  !unsafe.test(path) &&
  path.split('/').every((part) => part !== '' && part !== '.' && part !== '..' && part.toLowerCase() !== '.git')

/**
 * The web address of a repository that is named for SSH: `git@host:path` or `ssh://git@host/path`; null for all
 * others. At the host of `parent` it uses that address's scheme and port, elsewhere https.
 */
export const webAddress = (parent: string, url: string): string | null => {
  const [, host, path] =
    /^git@([0-9A-Za-z][0-9A-Za-z.-]*):\/?([^/].*)$/.exec(url) ??
    /^ssh:\/\/git@([0-9A-Za-z][0-9A-Za-z.-]*)(?::\d{1,5})?\/([^/].*)$/.exec(url) ??
    []
  if (host === undefined) return null
  const { hostname, origin } = new URL(parent)
  const address = `${hostname === host.toLowerCase() ? origin : `https://${host}`}/${path}`
  return isValidGitUrl(address) && !hasDots(path!.split('/')) ? address : null
}

const hasDots = (segments: readonly string[]): boolean =>
  segments.some((part) => part === '' || /^(?:\.|%2e){1,2}$/i.test(part))

/**
 * The address of a submodule of the repository at `parent`; null if it may not be used. A leading `./` or `../` is
 * relative to the parent's own address, as for git, and never leaves its host.
 */
export const submoduleUrl = (parent: string, url: string): string | null => {
  if (!/^\.{1,2}\//.test(url)) return isValidGitUrl(url) ? url : webAddress(parent, url)
  const { origin, pathname } = new URL(parent)
  const parts = pathname.replace(/\/+$/, '').split('/').slice(1)
  let rest = url
  for (let match = /^(\.{1,2})\/+/.exec(rest); match !== null; match = /^(\.{1,2})\/+/.exec(rest)) {
    if (match[1] === '..' && parts.pop() === undefined) return null
    rest = rest.slice(match[0].length)
  }
  const segments = rest.replace(/\/+$/, '').split('/')
  if (hasDots(segments)) return null
  const whole = `${origin}/${[...parts, ...segments].join('/')}`
  return isValidGitUrl(whole) ? whole : null
}

/** Only for hosts that serve no commit by its id: then its branch is fetched. */
export const branchesFor = ({ branch }: Submodule): string[] => {
  const named = branch !== null && isValidBranch(branch) ? [branch] : []
  return [...new Set([...named, 'main', 'master'])]
}
