/**
 * A COPY or ADD with more than the engine's classic builder knows: `--chmod`, `--exclude`, `--parents`, here-documents,
 * patterns without a match. From the context: its files are sent as the instruction wants them. From another image: that
 * image is changed first.
 */
import { posix } from 'node:path'
import { DeploymentError } from '../../lib/errors.ts'
import { type ContextShape, nothingFolder, ownFolder } from '../preparation/context-shape.ts'
import { type CopyInstruction, heredocValue, valueIn } from '../preparation/dockerfile.ts'
import type { Escape } from '../preparation/dockerfile-lines.ts'
import { readHeredocWord } from '../preparation/heredocs.ts'
import { buildFailure } from './engine-build.ts'
import { runTool, StepFailed } from './run-step.ts'
import type { BuildScene } from './stage-build.ts'

type LookUp = (name: string) => string | undefined

const failed = (why: string): DeploymentError => new DeploymentError('build_failed', `The build failed: ${why}`)

/** The mode as octal digits; null without one. */
const modeOf = (copy: CopyInstruction, sign: Escape, lookUp: LookUp): string | null => {
  const { chmod } = copy.extras!
  if (chmod === null) return null
  const value = valueIn(copy, chmod, sign, lookUp)
  if (!/^[0-7]{3,4}$/.test(value)) throw failed('--chmod must be an octal number like 755.')
  return value
}

interface Given {
  word: string
  /** Null for a path. */
  file: { name: string; text: string } | null
}

/** The sources with here-documents as files of ours. */
const giveSources = (copy: CopyInstruction, lookUp: LookUp): Given[] => {
  const heredocs = [...(copy.heredocs ?? [])]
  return copy.extras!.words.slice(0, -1).map((word, index) => {
    const isHeredoc = heredocs.length > 0 && readHeredocWord(word) !== null
    if (!isHeredoc) return { word, file: null }
    const heredoc = heredocs.shift()!
    const name = `${index}/${heredoc.name}`
    return { word: `${ownFolder}/${name}`, file: { name, text: heredocValue(copy, heredoc, lookUp) } }
  })
}

export interface ShapedCopy {
  /** Sources and destination, for the engine. */
  rest: string
  shape: ContextShape
}

/** A copy from the context. */
export const shapeCopy = (copy: CopyInstruction, sign: Escape, lookUp: LookUp): ShapedCopy => {
  const { excludes, parents, mayMatchNothing, words } = copy.extras!
  const given = giveSources(copy, lookUp)
  const isJson = copy.rest.startsWith('[')
  const expand = (word: string): string => valueIn(copy, word, sign, lookUp)
  const sources = given.filter(({ file }) => file === null).map(({ word }) => expand(word))
  const files = given.flatMap(({ file }) => (file === null ? [] : [file]))
  if (files.length > 0 && sources.some((source) => /^[./]*$/.test(source)))
    throw failed('one COPY cannot have both a here-document and the whole folder: use two.')
  const mode = modeOf(copy, sign, lookUp)
  const shape = {
    ...{ sources, files, parents, hasNothing: mayMatchNothing },
    ...{ excludes: excludes.map(expand), mode: mode === null ? null : Number.parseInt(mode, 8) },
  }
  const from = parents
    ? [`${ownFolder}/`]
    : [...given.map(({ word }) => word), ...(mayMatchNothing ? [`${nothingFolder}/`] : [])]
  const all = [...from, words.at(-1)!]
  return { rest: isJson ? JSON.stringify(all) : all.join(' '), shape }
}

/** Links are followed only where they are the source itself, as COPY follows them. */
const chmodScript = `mode=$1; shift; IFS=
for pattern in "$@"; do for path in /$pattern; do
[ -e "$path" ] || continue
"$0" find -H "$path" -xdev ! -type l -print0 | "$0" xargs -0 "$0" chmod "$mode" || exit 1
done; done`

/** A VOLUME of the image is not part of what a container of it leaves. */
const refuseVolumes = (sources: readonly string[], volumes: readonly string[]): void => {
  const isBelow = (path: string, folder: string): boolean => `${path}/`.startsWith(folder === '/' ? '/' : `${folder}/`)
  for (const source of sources.map((each) => posix.resolve('/', each)))
    for (const volume of volumes.map((each) => posix.resolve('/', each)))
      if (isBelow(source, volume) || isBelow(volume, source))
        throw failed(`COPY --from with --chmod cannot change ${source}, because of the VOLUME ${volume} of its image.`)
}

/** The image that a copy reads, with the mode that the copy wants. */
export const withMode = async (
  scene: BuildScene,
  copy: CopyInstruction,
  id: string,
  { sign, lookUp }: { sign: Escape; lookUp: LookUp },
  once: (what: unknown, make: () => Promise<string>) => Promise<string>,
): Promise<string> => {
  const mode = modeOf(copy, sign, lookUp)
  if (mode === null) return id
  const sources = copy.extras!.words.slice(0, -1).map((word) => valueIn(copy, word, sign, lookUp))
  const { engine, made, log, limits } = scene
  const parent = await scene.inspect(id)
  refuseVolumes(sources, Object.keys(parent.Config?.Volumes ?? {}))
  return once({ chmod: mode, sources }, () =>
    scene.watch(async (watched) => {
      const tool = { parent, script: chmodScript, words: [mode, ...sources], limits }
      try {
        return await runTool(engine, made, { ...tool, tools: await scene.tools() }, watched)
      } catch (error) {
        if (error instanceof StepFailed) throw buildFailure(log, `COPY --chmod failed: ${error.message}`, error)
        throw error
      }
    }),
  )
}
