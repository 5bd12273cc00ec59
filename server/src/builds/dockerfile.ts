/** Reads what a Dockerfile declares, without building it. Pure, and lenient: what is wrong the engine will say. */

export interface Stage {
  /** Lower case; null for a stage without a name. */
  name: string | null
  /** As written, with variables. */
  base: string
  /** Names declared by ARG inside the stage, in order. */
  declared: string[]
  /** `--from=` of its COPY instructions, as written. */
  copiesFrom: string[]
}

export interface Dockerfile {
  /** ARG before the first FROM: name and default; null without one. */
  globals: Map<string, string | null>
  stages: Stage[]
  /** True when an ADD names a remote address, or may by a variable: the engine itself would fetch it. */
  addsRemote: boolean
}

const escapeOf = (text: string): string => {
  for (const line of text.split('\n')) {
    const directive = /^\s*#\s*([a-zA-Z]+)\s*=\s*(\S+)\s*$/.exec(line)
    if (directive === null) return '\\'
    if (directive[1]!.toLowerCase() === 'escape') return directive[2]!
  }
  return '\\'
}

/** Instructions on one line each, joined as the engine joins them: without a blank, and not after a doubled escape. */
const joinLines = (text: string): string[] => {
  const sign = escapeOf(text) === '`' ? '`' : String.raw`\\`
  const continues = new RegExp(`(?<!${sign})${sign}[ \\t]*$`)
  const joined: string[] = []
  let open = ''
  for (const raw of text.replace(/^\uFEFF/, '').split('\n')) {
    const line = raw.trim()
    if (line === '' || line.startsWith('#')) continue
    const piece = open === '' ? raw.trimStart() : raw
    if (continues.test(piece.trimEnd())) {
      open += piece.trimEnd().replace(continues, '')
      continue
    }
    joined.push((open + piece).trim())
    open = ''
  }
  return open.trim() === '' ? joined : [...joined, open.trim()]
}

/** Words of an instruction; quotes group and vanish. */
const splitWords = (text: string): string[] =>
  [...text.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"']+)+/g)].map(([word]) => word.replace(/"([^"]*)"|'([^']*)'/g, '$1$2'))

const parseArgs = (words: string[]): [string, string | null][] =>
  words.map((word) => {
    const equals = word.indexOf('=')
    return equals === -1 ? [word, null] : [word.slice(0, equals), word.slice(equals + 1)]
  })

const parseFrom = (words: string[]): Stage => {
  const [base = '', as, name] = words.filter((word) => !word.startsWith('--'))
  const named = as?.toLowerCase() === 'as' && name !== undefined
  return { name: named ? name.toLowerCase() : null, base, declared: [], copiesFrom: [] }
}

const isRemote = (words: string[]): boolean => {
  const sources = words.filter((word) => !word.startsWith('--')).slice(0, -1)
  return words.join('').includes('://') || sources.some((source) => /^\[?"?(git@|\$)/.test(source))
}

export const parseDockerfile = (text: string): Dockerfile => {
  const globals = new Map<string, string | null>()
  const stages: Stage[] = []
  let addsRemote = false
  for (const line of joinLines(text)) {
    const all = splitWords(line)
    const [keyword = '', ...words] = all[0]?.toUpperCase() === 'ONBUILD' ? all.slice(1) : all
    const stage = stages.at(-1)
    switch (keyword.toUpperCase()) {
      case 'FROM':
        stages.push(parseFrom(words))
        break
      case 'ARG':
        for (const [name, value] of parseArgs(words)) {
          if (stage === undefined) globals.set(name, value)
          else stage.declared.push(name)
        }
        break
      case 'COPY': {
        const from = words.find((word) => word.startsWith('--from='))
        if (from !== undefined) stage?.copiesFrom.push(from.slice('--from='.length))
        break
      }
      case 'ADD':
        addsRemote ||= isRemote(words)
    }
  }
  return { globals, stages, addsRemote }
}

/** Every name that an ARG declares anywhere, once. */
export const declaredArgs = ({ globals, stages }: Dockerfile): string[] => [
  ...new Set([...globals.keys(), ...stages.flatMap((stage) => stage.declared)]),
]

/** The values of `variables` that the Dockerfile asks for, sorted by name. */
export const pickBuildArgs = (file: Dockerfile, variables: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    declaredArgs(file)
      .sort()
      .flatMap((name) => (Object.hasOwn(variables, name) ? [[name, variables[name]!]] : [])),
  )

const substitute = (text: string, values: Map<string, string>): string =>
  text.replace(/\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})/g, (_, plain, braced, operator = '', other = '') => {
    const value = values.get(plain ?? braced)
    const present = operator.startsWith(':') ? value !== undefined && value !== '' : value !== undefined
    if (operator.endsWith('+')) return present ? other : ''
    return present || operator === '' ? (value ?? '') : other
  })

const globalValues = (file: Dockerfile, buildArgs: Record<string, string>): Map<string, string> => {
  const values = new Map<string, string>()
  for (const [name, fallback] of file.globals) {
    const value = Object.hasOwn(buildArgs, name) ? buildArgs[name]! : fallback
    if (value !== null) values.set(name, substitute(value, values))
  }
  return values
}

const targetIndex = (stages: Stage[], target: string | null): number => {
  if (target === null) return stages.length - 1
  const named = stages.findIndex((stage) => stage.name === target.toLowerCase())
  return named === -1 && /^\d+$/.test(target) ? Number(target) : named
}

/** Images of registries that the stages up to `target` start or copy from, each once; `scratch` is none. */
export const baseImages = (file: Dockerfile, buildArgs: Record<string, string>, target: string | null): string[] => {
  const values = globalValues(file, buildArgs)
  const found = new Set<string>()
  const names = new Set<string>()
  for (const stage of file.stages.slice(0, targetIndex(file.stages, target) + 1)) {
    const base = substitute(stage.base, values)
    if (base !== '' && base.toLowerCase() !== 'scratch' && !names.has(base.toLowerCase())) found.add(base)
    for (const from of stage.copiesFrom)
      if (!/^\d+$/.test(from) && !names.has(from.toLowerCase()) && !from.includes('$')) found.add(from)
    if (stage.name !== null) names.add(stage.name)
  }
  return [...found]
}
