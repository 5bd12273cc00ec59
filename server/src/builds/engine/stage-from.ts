/**
 * COPY --from with options that the engine's classic builder does not support: the source image is changed first, by
 * programs of ours in a container of it.
 */
import { posix } from 'node:path'
import { DeploymentError } from '../../lib/errors.ts'
import { ownFolder } from '../preparation/context-shape.ts'
import { type FileMode, showFileMode } from '../preparation/file-modes.ts'
import { buildFailure } from './engine-build.ts'
import { runTool, StepFailed } from './run-step.ts'
import { type BuildScene, once } from './stage-pieces.ts'

interface CopyChanges {
  /** Paths and patterns in the image; with `parents`, perhaps with the `/./` before the kept part. */
  sources: string[]
  mode: FileMode | null
  /** Patterns relative to each source. */
  excludes: string[]
  parents: boolean
}

export const failed = (why: string): DeploymentError => new DeploymentError('build_failed', `The build failed: ${why}`)

/** `$@`: patterns of paths. Links are followed only where they are the source itself, as COPY follows them. */
const eachPath = `IFS=
for pattern in "$@"; do for path in /$pattern; do
[ -e "$path" ] || continue`

const chmodScript = `mode=$1; shift; ${eachPath}
"$0" find -H "$path" -xdev ! -type l -print0 | "$0" xargs -0 "$0" chmod "$mode" || exit 1
done; done`

/** `$1`: an expression for `find -regex` that matches the excluded paths below a source. */
const excludeScript = `rule=$1; shift; ${eachPath}
[ -d "$path" ] || continue
cd "$path" && "$0" find . -mindepth 1 -regex "$rule" -prune -exec "$0" rm -rf {} + || exit 1
done; done`

/** Pairs: the folder before the kept part, and the pattern in it. */
const parentsScript = `IFS=
while [ $# -gt 0 ]; do root=$1; pattern=$2; shift 2
cd "$root" || exit 1
for path in $pattern; do
[ -e "$path" ] || continue
folder=/${ownFolder}/$("$0" dirname "$path")
"$0" mkdir -p "$folder" && "$0" cp -a "$path" "$folder/" || exit 1
done; done
"$0" mkdir -p /${ownFolder}`

const special = /[.[\]*^$\\]/g
const literal = (text: string): string => text.replaceAll(special, String.raw`\$&`)

/** A pattern of --exclude as a basic regular expression for the paths that `find .` prints. */
export const excludeExpression = (pattern: string): string => {
  const parts = posix.join('/', pattern).slice(1).replace(/\/$/, '')
  const tokens = parts.match(/\*\*\/|\*\*|\*|\?|\[[^\]/]+\]|\\.|[^*?[\\]+|[[\\]/g) ?? []
  const translated = tokens.map((token) => {
    if (token === '**/') return String.raw`\(.*/\)*`
    if (token === '**') return '.*'
    if (token === '*') return '[^/]*'
    if (token === '?') return '[^/]'
    if (token.length > 1 && token.startsWith('[')) return token.replace(/^\[!/, '[^')
    return literal(token.length === 2 && token.startsWith('\\') ? token.slice(1) : token)
  })
  return `./${translated.join('')}`
}

const pairOf = (source: string): [string, string] => {
  const pivot = source.indexOf('/./', 1)
  if (source.includes('**')) throw failed('COPY --from with --parents cannot have ** in a source.')
  const kept = posix.join('/', pivot === -1 ? source : source.slice(pivot + 2)).slice(1)
  return [posix.join('/', pivot === -1 ? '' : source.slice(0, pivot)), kept === '' ? '.' : kept]
}

/** Files in a VOLUME of the image are not part of an image made from its container. */
const refuseVolumes = (sources: readonly string[], volumes: readonly string[]): void => {
  const isBelow = (path: string, folder: string): boolean => `${path}/`.startsWith(folder === '/' ? '/' : `${folder}/`)
  for (const source of sources.map((each) => posix.resolve('/', each)))
    for (const volume of volumes.map((each) => posix.resolve('/', each)))
      if (isBelow(source, volume) || isBelow(volume, source))
        throw failed(
          `COPY --from with --chmod, --exclude or --parents cannot change ${source}, because of the VOLUME ${volume} of its image.`,
        )
}

const stepsOf = ({ sources, mode, excludes, parents }: CopyChanges): { script: string; words: string[] }[] => [
  ...excludes.map((each) => ({ script: excludeScript, words: [excludeExpression(each), ...sources] })),
  ...(mode === null ? [] : [{ script: chmodScript, words: [showFileMode(mode), ...sources] }]),
  ...(parents ? [{ script: parentsScript, words: sources.flatMap(pairOf) }] : []),
]

export const changesNothing = ({ mode, excludes, parents }: CopyChanges): boolean =>
  mode === null && excludes.length === 0 && !parents

/** Id of the image to copy from, and the paths to copy. */
export const changedImage = async (
  scene: BuildScene,
  from: string,
  changes: CopyChanges,
): Promise<{ id: string; sources: string[] }> => {
  const { engine, made, log, limits } = scene
  const { sources, parents } = changes
  refuseVolumes(sources, Object.keys((await scene.inspect(from)).Config?.Volumes ?? {}))
  let id = from
  for (const step of stepsOf(changes)) {
    const parent = await scene.inspect(id)
    id = await once(scene, id, step, () =>
      scene.watch(async (watched) => {
        try {
          return await runTool(engine, made, { parent, ...step, limits, tools: await scene.tools() }, watched)
        } catch (error) {
          if (error instanceof StepFailed) throw buildFailure(log, `COPY --from failed: ${error.message}`, error)
          throw error
        }
      }),
    )
  }
  return { id, sources: parents ? [`/${ownFolder}/`] : sources.map((each) => posix.join('/', each)) }
}
