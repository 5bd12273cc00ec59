/**
 * Settings that stay: `slipway.env` in the data directory, lines of `NAME=value`. The environment wins over it. Strict,
 * because a line that is ignored is a setting that silently does nothing; it never repeats a value, which may be secret.
 */
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { words } from '../lib/words.ts'

export const settingsFileName = 'slipway.env'

/** Programs of Docker read these themselves; the server passes them on. */
export const engineNames: readonly string[] = Object.freeze(['DOCKER_TLS_VERIFY', 'DOCKER_CERT_PATH'])

const maxBytes = 65_536

export class SettingsError extends Error {
  readonly problems: readonly string[]

  constructor(problems: readonly string[]) {
    super(problems.join('\n'))
    this.name = 'SettingsError'
    this.problems = problems
  }
}

export interface FileSetting {
  value: string
  line: number
}

interface SettingsFile {
  settings: ReadonlyMap<string, FileSetting>
  problems: string[]
}

const unquoted = (text: string): string | null => {
  const [quote] = text
  if (quote !== '"' && quote !== "'") return text
  const inner = text.slice(1, -1)
  return text.length > 1 && text.endsWith(quote) && !inner.includes(quote) ? inner : null
}

/** Pure: the lines of a file, and one sentence for each that is wrong. */
export const parseSettingsFile = (text: string): SettingsFile => {
  const settings = new Map<string, FileSetting>()
  const problems: string[] = []
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = index + 1
    const wrong = (what: string): void => void problems.push(`${settingsFileName}, line ${line}: ${what}`)
    const content = raw.trim()
    if (content === '' || content.startsWith('#')) continue
    const [, name, rest = ''] = /^([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/s.exec(content) ?? []
    const value = unquoted(rest)
    const before = name === undefined ? undefined : settings.get(name)
    if (name === undefined) wrong('must be NAME=value, or a comment that begins with #.')
    else if (value === null) wrong(`the value of ${name} has a quote too many or too few.`)
    else if (/\p{Cc}/u.test(value)) wrong(`the value of ${name} has a control character.`)
    else if (before !== undefined) wrong(`${name} was set before, in line ${before.line}.`)
    else settings.set(name, { value, line })
  }
  return { settings, problems }
}

const secretNames = words(
  'SLIPWAY_ADMIN_TOKEN SLIPWAY_METRICS_TOKEN SLIPWAY_OIDC_CLIENT_SECRET SLIPWAY_ACME_EAB_HMAC',
  'SLIPWAY_ACME_DNS_TOKEN SLIPWAY_ACME_DNS_SECRET_KEY SLIPWAY_ACME_DNS_TSIG_SECRET',
  'SLIPWAY_BACKUP_S3_SECRET_ACCESS_KEY',
)

const holdsSecret = ({ settings }: SettingsFile): boolean => {
  const hasPassword = URL.parse(settings.get('DATABASE_URL')?.value ?? '')?.password
  return secretNames.some((name) => settings.has(name)) || Boolean(hasPassword)
}

/** A user who can write the file controls the server. */
const judgeAccess = (path: string, mode: number, owner: number, file: SettingsFile): string[] => {
  const me = process.getuid?.() ?? owner
  if (owner !== me && owner !== 0) return [`${path} belongs to another user: chown it to the one that runs Slipway.`]
  if ((mode & 0o022) !== 0) return [`Other users may write to ${path}: chmod 600 it.`]
  if ((mode & 0o044) !== 0 && holdsSecret(file))
    return [`${path} has a secret that other users may read: chmod 600 it.`]
  return []
}

const openIfThere = (path: string): number | null => {
  try {
    return openSync(path, 'r')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return null
    throw new SettingsError([code === 'EACCES' ? `This user may not read ${path}.` : `${path}: ${message}`])
  }
}

/** For this data directory. Throws a `SettingsError` with every problem; a missing file has no settings. */
export const loadSettingsFile = (dataDir: string): ReadonlyMap<string, FileSetting> => {
  const path = join(dataDir, settingsFileName)
  const descriptor = openIfThere(path)
  if (descriptor === null) return new Map()
  try {
    const { mode, uid, size } = fstatSync(descriptor)
    if (size > maxBytes) throw new SettingsError([`${path} is larger than ${maxBytes} bytes.`])
    const file = parseSettingsFile(readFileSync(descriptor, 'utf8'))
    const problems = [...judgeAccess(path, mode, uid, file), ...file.problems]
    if (problems.length > 0) throw new SettingsError(problems)
    return file.settings
  } finally {
    closeSync(descriptor)
  }
}

export const readSettingsFile = (dataDir: string): Record<string, string> =>
  Object.fromEntries([...loadSettingsFile(dataDir)].map(([name, { value }]) => [name, value]))
