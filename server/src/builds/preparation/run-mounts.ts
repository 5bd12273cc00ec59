/**
 * `RUN --mount=…` of a Dockerfile: the options as written, and their meaning once variables have values. Pure. Decides
 * where a mount may be, and that it reaches nothing outside its container.
 */
import { posix } from 'node:path'
import { BadWord } from './bad-word.ts'

type MountType = 'bind' | 'cache' | 'secret' | 'tmpfs'

export interface RunMount {
  type: MountType
  /** By their main name, as written, with variables; a flag without a value is `true`. */
  options: Readonly<Record<string, string>>
  /** For a bind: stage or image, as written; null for the context. */
  from: string | null
}

interface Owned {
  uid: number
  gid: number
  mode: number
}

export interface BindMount {
  type: 'bind'
  index: number
  from: string | null
  source: string
  target: string
  isReadOnly: boolean
}

type Sharing = 'shared' | 'private' | 'locked'

export interface CacheMount extends Owned {
  type: 'cache'
  id: string
  target: string
  sharing: Sharing
  isReadOnly: boolean
}

export interface SecretMount extends Owned {
  type: 'secret'
  /** Name of a variable of the service. */
  id: string
  /** Null for a secret that is only a variable of the command. */
  target: string | null
  env: string | null
  isRequired: boolean
}

interface TmpfsMount {
  type: 'tmpfs'
  target: string
  sizeBytes: number | null
}

export type StepMount = BindMount | CacheMount | SecretMount | TmpfsMount

const keysOf: Record<MountType, readonly string[]> = {
  bind: ['target', 'source', 'from', 'readonly', 'rw'],
  cache: ['target', 'id', 'sharing', 'mode', 'uid', 'gid', 'readonly', 'rw', 'from', 'source'],
  secret: ['target', 'id', 'required', 'mode', 'uid', 'gid', 'env'],
  tmpfs: ['target', 'size'],
}
const otherNames: Record<string, string> = {
  ...{ dst: 'target', destination: 'target', src: 'source', ro: 'readonly', readwrite: 'rw' },
}
const flags = new Set(['readonly', 'rw', 'required'])
const maxMounts = 30
// biome-ignore lint/suspicious/noControlCharactersInRegex: none belongs in a path
const controls = /[\u0000-\u001f\u007f]/

const typeOf = (name: string): MountType => {
  if (name === 'ssh')
    throw new BadWord('RUN --mount=type=ssh is refused, since builds have no SSH agent: pass the key with type=secret')
  if (!Object.hasOwn(keysOf, name)) throw new BadWord(`RUN --mount has no type ${name.slice(0, 40)}`)
  return name as MountType
}

/** One `--mount=…`. Throws `BadWord`. */
export const readMount = (text: string): RunMount => {
  const options = new Map<string, string>()
  for (const part of text.split(',')) {
    const equals = part.indexOf('=')
    const written = (equals === -1 ? part : part.slice(0, equals)).toLowerCase()
    const key = Object.hasOwn(otherNames, written) ? otherNames[written]! : written
    if (options.has(key)) throw new BadWord(`RUN --mount repeats ${key.slice(0, 40)}`)
    if (equals === -1 && !flags.has(key)) throw new BadWord(`RUN --mount has ${key.slice(0, 40)} without a value`)
    options.set(key, equals === -1 ? 'true' : part.slice(equals + 1))
  }
  const type = typeOf(options.get('type') ?? 'bind')
  options.delete('type')
  for (const key of options.keys())
    if (!keysOf[type].includes(key)) throw new BadWord(`RUN --mount=type=${type} has no option ${key.slice(0, 40)}`)
  const from = options.get('from') ?? null
  if (from !== null && !/^[A-Za-z0-9._/:@-]+$/.test(from))
    throw new BadWord('RUN --mount accepts from= only with the literal name of a stage or an image')
  if (type === 'cache' && (from !== null || options.has('source')))
    throw new BadWord('RUN --mount=type=cache with from= or source= is not supported: a cache begins empty')
  options.delete('from')
  const mount = { type, options: Object.fromEntries(options), from }
  if (type === 'secret') secretId(mount)
  return mount
}

/** The id of a secret: literal, so that it is known, and hidden in the log, before anything runs. */
export const secretId = ({ options }: RunMount): string => {
  const id = options.id || posix.basename(options.target ?? '')
  if (id === '' || id.includes('$') || controls.test(id))
    throw new BadWord('RUN --mount=type=secret needs a literal id, which names a variable')
  return id
}

/**
 * The value of a secret by its id: that of the variable of this name, else of the one whose name has `_` for
 * characters that names of shell variables cannot have, as it is or in capitals (`npm-token`: `npm_token`,
 * `NPM_TOKEN`).
 */
export const findSecret = (variables: Readonly<Record<string, string>>, id: string): string | undefined => {
  const plain = id.replaceAll(/[^A-Za-z0-9_]/g, '_')
  const name = [id, plain, plain.toUpperCase()].find((each) => Object.hasOwn(variables, each))
  return name === undefined ? undefined : variables[name]
}

export const refuseTooMany = (mounts: readonly unknown[]): void => {
  if (mounts.length > maxMounts) throw new BadWord(`RUN has more than ${maxMounts} mounts`)
}

const readFlag = (options: RunMount['options'], key: string, usual: boolean): boolean => {
  const value = options[key]
  if (value === undefined) return usual
  if (['true', '1'].includes(value.toLowerCase())) return true
  if (['false', '0'].includes(value.toLowerCase())) return false
  throw new BadWord(`${key} of RUN --mount must be true or false`)
}

const readNumber = (options: RunMount['options'], key: string, usual: number, base: 8 | 10): number => {
  const value = options[key]
  if (value === undefined) return usual
  const fits = base === 8 ? /^[0-7]{1,5}$/.test(value) : /^\d{1,9}$/.test(value)
  if (!fits) throw new BadWord(`${key} of RUN --mount must be ${base === 8 ? 'an octal number' : 'a number'}`)
  return Number.parseInt(value, base) & (base === 8 ? 0o7777 : 0x7fffffff)
}

const readSize = (text: string): number => {
  const [, count, unit = ''] = /^(\d{1,12})([kmgt]?)b?$/i.exec(text) ?? []
  const bytes = Number(count) * 1024 ** ' kmgt'.indexOf(unit.toLowerCase() || ' ')
  if (!Number.isSafeInteger(bytes) || bytes === 0) throw new BadWord('size of RUN --mount must be like 64m')
  return bytes
}

/** The engine's and our own. */
const reservedPlaces = /^\/(?:proc|sys|dev\/slipway[^/]*|dev\/pipes|\.dockerenv)(?:\/|$)/

/** A path in the step's container, absolute and without `.` and `..`. */
const placeOf = (target: string, folder: string): string => {
  if (controls.test(target) || target.length > 1000) throw new BadWord('target of RUN --mount cannot be read')
  const path = posix.resolve('/', folder, target)
  if (path === '/') throw new BadWord('RUN --mount cannot have / as its target')
  if (reservedPlaces.test(path)) throw new BadWord(`RUN --mount cannot have ${path.slice(0, 60)} as its target`)
  return path
}

const demandTarget = ({ options, type }: RunMount): string => {
  if ((options.target ?? '') === '') throw new BadWord(`RUN --mount=type=${type} has no target`)
  return options.target!
}

const ownedBy = (options: RunMount['options'], mode: number): Owned => ({
  uid: readNumber(options, 'uid', 0, 10),
  gid: readNumber(options, 'gid', 0, 10),
  mode: readNumber(options, 'mode', mode, 8),
})

const isReadOnly = (options: RunMount['options'], usual: boolean): boolean =>
  options.rw === undefined ? readFlag(options, 'readonly', usual) : !readFlag(options, 'rw', false)

/** Characters that COPY would read as a pattern or a variable cannot be in the path of a mount. */
const literalSource = /^[^*?[\]\\$"'`]*$/

const readBind = (mount: RunMount, index: number, folder: string): BindMount => {
  const { options, from } = mount
  const source = options.source ?? '.'
  if (!literalSource.test(source) || controls.test(source) || source.length > 1000)
    throw new BadWord('source of RUN --mount has a character that is not supported')
  const target = placeOf(demandTarget(mount), folder)
  return {
    type: 'bind',
    index,
    from,
    source: source === '' ? '.' : source,
    target,
    isReadOnly: isReadOnly(options, true),
  }
}

const readCache = (mount: RunMount, folder: string): CacheMount => {
  const { options } = mount
  const target = placeOf(demandTarget(mount), folder)
  const sharing = options.sharing ?? 'shared'
  if (sharing !== 'shared' && sharing !== 'private' && sharing !== 'locked')
    throw new BadWord('sharing of RUN --mount must be shared, private or locked')
  const own = { id: options.id || target, target, sharing, isReadOnly: isReadOnly(options, false) } as const
  return { type: 'cache', ...own, ...ownedBy(options, 0o755) }
}

const readSecret = (mount: RunMount, folder: string): SecretMount => {
  const { options } = mount
  const id = secretId(mount)
  const env = options.env ?? null
  if (env !== null && !/^[A-Za-z_][A-Za-z0-9_]{0,200}$/.test(env))
    throw new BadWord('env of RUN --mount can have only letters, digits and underscores')
  const written = options.target ?? (env === null ? `/run/secrets/${id}` : null)
  const target = written === null ? null : placeOf(written, folder)
  return {
    type: 'secret',
    id,
    target,
    env,
    isRequired: readFlag(options, 'required', false),
    ...ownedBy(options, 0o400),
  }
}

const readTmpfs = (mount: RunMount, folder: string): TmpfsMount => {
  const { size } = mount.options
  const target = placeOf(demandTarget(mount), folder)
  return { type: 'tmpfs', target, sizeBytes: size === undefined ? null : readSize(size) }
}

const isBelow = (path: string, folder: string): boolean => path.startsWith(`${folder}/`)

/** Two builds share a cache: changes by one of them must not move mounts of the other. */
const refusePlaces = (mounts: readonly StepMount[]): void => {
  const targets = mounts.flatMap(({ target }) => (target === null ? [] : [target]))
  if (new Set(targets).size !== targets.length) throw new BadWord('two mounts of RUN have the same target')
  for (const each of mounts)
    if (each.type === 'cache' && targets.some((target) => isBelow(target, each.target)))
      throw new BadWord(`RUN cannot mount anything inside of the cache ${each.target.slice(0, 60)}`)
}

/** The mounts of a RUN; `folder` is its working directory. Throws `BadWord`. */
export const resolveMounts = (
  mounts: readonly RunMount[],
  folder: string,
  expand: (text: string) => string,
): StepMount[] => {
  const found = mounts.map((mount, index): StepMount => {
    const options = Object.fromEntries(Object.entries(mount.options).map(([key, value]) => [key, expand(value)]))
    const known = { ...mount, options }
    if (mount.type === 'bind') return readBind(known, index, folder)
    if (mount.type === 'cache') return readCache(known, folder)
    return mount.type === 'secret' ? readSecret(known, folder) : readTmpfs(known, folder)
  })
  refusePlaces(found)
  return found
}
