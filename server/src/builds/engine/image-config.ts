/** The configuration of an image for its containers, in the engine's format. Pure. */

export interface ImageConfig {
  User?: string
  ExposedPorts?: Record<string, object> | null
  Env?: string[] | null
  Cmd?: string[] | null
  Healthcheck?: object | null
  ArgsEscaped?: boolean
  Volumes?: Record<string, object> | null
  WorkingDir?: string
  Entrypoint?: string[] | null
  OnBuild?: string[] | null
  Labels?: Record<string, string> | null
  StopSignal?: string
  StopTimeout?: number | null
  Shell?: string[] | null
}

export interface ImageDetail {
  Id: string
  Author?: string
  Os: string
  Architecture: string
  Variant?: string
  Config: ImageConfig | null
}

export const envOf = ({ Config }: ImageDetail): Map<string, string> =>
  new Map(
    (Config?.Env ?? []).map((each) => {
      const equals = each.indexOf('=')
      return equals === -1 ? [each, ''] : [each.slice(0, equals), each.slice(equals + 1)]
    }),
  )

export const stepWords = (argv: string[] | null, command: string, { Config }: ImageDetail): string[] => {
  if (argv !== null) return argv
  const shell = Config?.Shell ?? []
  return [...(shell.length > 0 ? shell : ['/bin/sh', '-c']), command]
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/** The same command with arguments in its environment. Not by the container's own, which would pass to the image. */
export const withArgs = (words: string[], args: [name: string, value: string][]): string[] => {
  if (args.length === 0) return words
  const set = args.map(([name, value]) => `${name}=${quote(value)}`).join(' ')
  return ['/bin/sh', '-c', `export ${set}; exec "$@"`, 'sh', ...words]
}

/** The same command once its shell has read a file of variables. */
export const withPrelude = (words: string[], path: string | null): string[] =>
  path === null ? words : ['/bin/sh', '-c', `. ${path}; exec "$@"`, 'sh', ...words]

export const exportLine = (name: string, value: string): string => `export ${name}=${quote(value)}\n`

/**
 * The command of a step's container, so that an image made from it has its parent's: the engine takes fields that the
 * new configuration leaves out from the container's. An image with a command and no entrypoint keeps `null` for the
 * latter only when the container has none either.
 */
export const commandOf = ({ Config }: ImageDetail, words: string[]) =>
  (Config?.Entrypoint ?? null) === null && (Config?.Cmd ?? []).length > 0
    ? { Entrypoint: null, Cmd: words }
    : { Entrypoint: words, Cmd: null }

/** The configuration of the image after a step: its parent's. */
export const configAfter = ({ Config }: ImageDetail) => {
  const config = Config ?? {}
  const isBare = (config.Entrypoint ?? null) === null && (config.Cmd ?? []).length === 0
  return { ...config, Entrypoint: isBare ? [] : (config.Entrypoint ?? null), Cmd: config.Cmd ?? null, OnBuild: null }
}
