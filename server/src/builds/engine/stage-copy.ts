/**
 * COPY and ADD. Forms that the engine's classic builder supports become a line of the next piece. Others (`--chmod`,
 * `--exclude`, `--parents`, here-documents, patterns without a match, downloads) become a piece of their own: from the
 * context, its files are sent as the instruction wants them; from another image, that image is changed first
 * (stage-from.ts).
 */
import { rm } from 'node:fs/promises'
import { posix } from 'node:path'
import type { PlannedStage } from '../preparation/build-plan.ts'
import { type ContextShape, nothingFolder, ownFolder } from '../preparation/context-shape.ts'
import { type CopyInstruction, heredocValue, valueIn } from '../preparation/dockerfile.ts'
import { addedSource, type CopySource, copiedSource, readOwner } from '../preparation/dockerfile-copy.ts'
import { reading } from '../preparation/dockerfile-flags.ts'
import { unreadable } from '../preparation/dockerfile-lines.ts'
import { changeMode, type FileMode, readFileMode } from '../preparation/file-modes.ts'
import { readHeredocWord } from '../preparation/heredocs.ts'
import { ownDockerfile } from '../preparation/own-dockerfile.ts'
import { type Checksum, type Download, downloadName, readChecksum } from './downloads.ts'
import { createEngineText } from './engine-text.ts'
import { ownArchive } from './own-archive.ts'
import { changedImage, changesNothing, failed } from './stage-from.ts'
import {
  type BuildScene,
  bareId,
  describeInstruction,
  flush,
  namesIn,
  once,
  originId,
  push,
  type StageState,
} from './stage-pieces.ts'

type Source = CopySource | { type: 'heredoc'; name: string; text: string }

interface ReadyCopy {
  copy: CopyInstruction
  sources: Source[]
  destination: string
  chown: string | null
  mode: FileMode | null
  checksum: Checksum | null
  excludes: string[]
}

/** Sources in their order, here-documents as files of ours. */
const readSources = (copy: CopyInstruction, expand: (word: string) => string, state: StageState): Source[] => {
  const heredocs = [...(copy.heredocs ?? [])]
  return copy.words.slice(0, -1).map((word, index): Source => {
    if (heredocs.length > 0 && readHeredocWord(word) !== null) {
      const heredoc = heredocs.shift()!
      return { type: 'heredoc', name: `${index}/${heredoc.name}`, text: heredocValue(copy, heredoc, namesIn(state)) }
    }
    return copy.word === 'ADD' ? addedSource(expand(word), copy.line) : copiedSource(expand(word))
  })
}

const readSum = ({ line }: CopyInstruction, text: string, sources: readonly Source[]): Checksum => {
  const sum = readChecksum(text)
  if (sum === null) throw unreadable(line, 'ADD --checksum must be of the form sha256:… with 64 hex digits.')
  if (sources.length !== 1 || sources[0]!.type !== 'download')
    throw unreadable(line, 'ADD --checksum needs exactly one source, the address of a download.')
  return sum
}

const readyCopy = (scene: BuildScene, state: StageState, copy: CopyInstruction): ReadyCopy => {
  const expand = (word: string): string => valueIn(copy, word, scene.plan.file.sign, namesIn(state))
  const sources = readSources(copy, expand, state)
  const [chmod, chown] = [copy.chmod === null ? '' : expand(copy.chmod), copy.chown === null ? '' : expand(copy.chown)]
  const written = expand(copy.words.at(-1)!)
  const destination = written === '.' ? './' : written
  const isSplit = sources.length > 1 && sources.some(({ type }) => type === 'download')
  if (isSplit && !destination.endsWith('/'))
    throw unreadable(copy.line, `${copy.word} with more than one source needs a destination that ends with /.`)
  return {
    ...{ copy, sources, destination, excludes: copy.excludes.map(expand) },
    chown: chown === '' ? null : readOwner(chown, copy.line),
    mode: chmod === '' ? null : reading(copy, () => readFileMode(chmod)),
    checksum: copy.checksum === null ? null : readSum(copy, expand(copy.checksum), sources),
  }
}

interface LineParts {
  id?: string
  sources: string[]
  unpacks: boolean
  display: string
}

const addLine = (scene: BuildScene, state: StageState, ready: ReadyCopy, parts: LineParts): void => {
  const { copy, chown, destination } = ready
  const { id, sources, display } = parts
  const flags = [...(id === undefined ? [] : [`--from=${bareId(id)}`]), ...(chown === null ? [] : [`--chown=${chown}`])]
  const word = parts.unpacks ? 'ADD' : 'COPY'
  const { list } = createEngineText(scene.plan.file.sign, () => '')
  const text = [word, ...flags, list([...sources, destination])].join(' ')
  push(state, { word, text, display, line: copy.line, needsFiles: id === undefined, values: [] })
}

const isPattern = (word: string): boolean => /[*?[]/.test(word)

/** Null for forms that the engine supports itself. */
const shapeOf = ({ copy, mode, excludes, destination }: ReadyCopy, sources: readonly Source[]): ContextShape | null => {
  const paths = sources.flatMap((each) => (each.type === 'path' ? [each] : []))
  const files = sources.flatMap((each) => (each.type === 'heredoc' ? [{ name: each.name, text: each.text }] : []))
  if (files.length > 0 && paths.some(({ path }) => path === '/'))
    throw failed('one COPY cannot have both a here-document and the whole folder: use two.')
  const hasNothing = files.length === 0 && paths.every(({ written }) => isPattern(written)) && destination.endsWith('/')
  const { parents } = copy
  if (mode === null && excludes.length === 0 && !parents && !hasNothing && files.length === 0) return null
  return { sources: paths.map(({ written }) => written), files, parents, hasNothing, excludes, mode }
}

const copyFiles = async (
  scene: BuildScene,
  state: StageState,
  ready: ReadyCopy,
  part: { sources: Source[]; display: string },
): Promise<void> => {
  const { copy } = ready
  const shape = shapeOf(ready, part.sources)
  const paths = part.sources.map((each) =>
    each.type === 'path' ? each.path : each.type === 'heredoc' ? `/${ownFolder}/${each.name}` : each.url,
  )
  const sources = shape?.parents ? [`/${ownFolder}/`] : [...paths, ...(shape?.hasNothing ? [`/${nothingFolder}/`] : [])]
  const unpacks = copy.word === 'ADD' && copy.unpack !== false
  if (shape !== null) await flush(scene, state)
  addLine(scene, state, ready, { sources, unpacks, display: part.display })
  if (shape !== null) await flush(scene, state, { shape })
}

const saveAndCopy = async (
  scene: BuildScene,
  state: StageState,
  ready: ReadyCopy,
  { url, download }: { url: string; download: Download },
): Promise<string> => {
  const { copy, mode, checksum } = ready
  const path = scene.made.file()
  try {
    const { sizeBytes, read } = await scene.watch((watched) => download.save(path, checksum, watched))
    const file = {
      ...{ name: downloadName(url), sizeBytes, read, modifiedAt: download.modifiedAt },
      mode: mode === null ? 0o600 : changeMode(mode, 0o600, false),
    }
    // By a pattern, so that no character of its name has a special meaning.
    const sources = [`/${ownFolder}/*`]
    addLine(scene, state, ready, { sources, unpacks: copy.unpack === true, display: `Downloaded ${sizeBytes} bytes` })
    await flush(scene, state, {
      files: async (text) => ({ tar: ownArchive(text, file), dockerfile: ownDockerfile }),
    })
    return state.image!
  } finally {
    await rm(path, { force: true })
  }
}

/** A download is known by its checksum, or by what the server calls this content; else by the content itself. */
const addDownload = async (
  scene: BuildScene,
  state: StageState,
  ready: ReadyCopy,
  { url, display }: { url: string; display: string },
): Promise<void> => {
  const { copy, destination, chown, mode, checksum } = ready
  await flush(scene, state)
  scene.log.write(`${display}\n`)
  const opened = checksum === null ? await scene.downloads.open(url, scene.signal) : null
  const known = checksum ?? (opened!.etag === null ? null : { url, etag: opened!.etag })
  const make = async (): Promise<string> =>
    saveAndCopy(scene, state, ready, { url, download: opened ?? (await scene.downloads.open(url, scene.signal)) })
  const what = { known, name: downloadName(url), destination, chown, mode, unpack: copy.unpack }
  try {
    state.image = known === null ? await make() : await once(scene, state.image ?? 'scratch', what, make)
    state.isOwn = true
  } finally {
    opened?.drop()
  }
}

/** Splits the sources into single downloads, and groups of the others between them. */
const partsOf = (sources: readonly Source[]): Source[][] => {
  const parts: Source[][] = []
  for (const source of sources) {
    const last = parts.at(-1)
    if (source.type === 'download' || last === undefined || last[0]!.type === 'download') parts.push([source])
    else last.push(source)
  }
  return parts
}

const copyFrom = async (scene: BuildScene, state: StageState, ready: ReadyCopy, from: string): Promise<void> => {
  const { copy, mode, excludes } = ready
  const sources = ready.sources.flatMap((each) => (each.type === 'path' ? [each.written] : []))
  const changes = { sources, mode, excludes, parents: copy.parents }
  const isPlain = changesNothing(changes)
  if (!isPlain) await flush(scene, state)
  const changed = isPlain
    ? { id: from, sources: sources.map((each) => posix.join('/', each)) }
    : await changedImage(scene, from, changes)
  addLine(scene, state, ready, { ...changed, unpacks: false, display: describeInstruction(scene, copy) })
}

export const addCopy = async (
  scene: BuildScene,
  planned: PlannedStage,
  state: StageState,
  copy: CopyInstruction,
): Promise<void> => {
  const ready = readyCopy(scene, state, copy)
  const origin = planned.copies.get(copy.step)
  if (origin !== undefined) {
    const id = originId(scene, origin)
    if (id === null) throw failed('COPY --from=scratch has nothing to copy.')
    return copyFrom(scene, state, ready, id)
  }
  const display = describeInstruction(scene, copy)
  for (const [index, sources] of partsOf(ready.sources).entries()) {
    const first = sources[0]!
    const shown = index === 0 ? display : `${display} (continued)`
    if (first.type === 'download') await addDownload(scene, state, ready, { url: first.url, display: shown })
    else await copyFiles(scene, state, ready, { sources, display: shown })
  }
}
