/**
 * Archives of charts, which are untrusted: read within limits, and packed again from plain files alone, so that helm
 * gets no links, no paths that leave the folder and no more than was counted. The same files make the same archive.
 */
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { createGunzip, gzip } from 'node:zlib'
import { pack } from 'tar-stream'
import { type ArchiveEntry, ArchiveRefused, readTar } from '../../builds/pushed/tar-reader.ts'
import { DeploymentError } from '../../lib/errors.ts'

export interface ChartFile {
  path: string
  content: Buffer
}

/** Helm stores a chart with its release in a secret, which may have 1 MiB: a much larger one cannot be installed. */
export const maxArchiveBytes = 4 << 20
export const maxChartBytes = 20 << 20
export const maxChartFiles = 2000
/** Nesting of charts within charts. */
const deepest = 4

const refuse = (message: string): never => {
  throw new DeploymentError('chart_refused', message)
}

/** Counts the content of a chart, charts inside it included. */
interface Room {
  files: number
  bytes: number
}

const tooLarge = (): never =>
  refuse(
    `The chart has more than ${maxChartFiles} files or ${maxChartBytes >> 20} MiB: leave out what it does not need.`,
  )

const take = (room: Room, bytes: number): void => {
  room.files += 1
  room.bytes += bytes
  if (room.files > maxChartFiles || room.bytes > maxChartBytes) tooLarge()
}

const limitsFor = ({ files, bytes }: Room) => ({
  maxBytes: maxArchiveBytes,
  inflatedBytes: maxChartBytes - bytes,
  entries: 2 * (maxChartFiles - files) + 1,
  pathBytes: 1024,
  allPathBytes: 1 << 20,
})

async function* counted(source: AsyncIterable<Buffer>, most: number): AsyncGenerator<Buffer> {
  let bytes = 0
  for await (const chunk of source) {
    bytes += chunk.length
    // Headers and padding take some, too.
    if (bytes > 2 * most + (1 << 20)) tooLarge()
    yield chunk
  }
}

const readEntry = async (entry: ArchiveEntry, room: Room): Promise<ChartFile> => {
  if (entry.mode === '120000') refuse(`The chart has a link (${entry.path.slice(0, 200)}): replace it by a file.`)
  take(room, entry.size)
  return { path: entry.path, content: await buffer(entry.content) }
}

const isArchive = (path: string): boolean => /(^|\/)charts\/[^/]+\.(tgz|tar\.gz)$/.test(path)

const readFiles = async (archive: Buffer, room: Room, depth: number): Promise<ChartFile[]> => {
  if (depth > deepest) refuse('The chart has charts in charts in charts: there are too many levels.')
  const unzipped = Readable.from([archive]).pipe(createGunzip())
  const files: ChartFile[] = []
  try {
    for await (const entry of readTar(counted(unzipped, maxChartBytes), limitsFor(room)))
      files.push(await readEntry(entry, room))
  } finally {
    unzipped.destroy()
  }
  return checkInner(files, room, depth)
}

/** Archives of charts that it depends on are packed again in the same way. */
const checkInner = async (files: readonly ChartFile[], room: Room, depth: number): Promise<ChartFile[]> => {
  const all: ChartFile[] = []
  for (const { path, content } of files)
    all.push({ path, content: isArchive(path) ? await packFiles(await readFiles(content, room, depth + 1)) : content })
  return all
}

const zipped = promisify(gzip)

const packFiles = async (files: readonly ChartFile[]): Promise<Buffer> => {
  const archive = pack()
  for (const { path, content } of files) archive.entry({ name: path, mtime: new Date(0), mode: 0o644 }, content)
  archive.finalize()
  return zipped(await buffer(archive))
}

const refusedAs = (error: unknown): never => {
  if (error instanceof ArchiveRefused) return refuse(`The archive of the chart is refused: ${error.message}`)
  const { code = '' } = error as { code?: string }
  if (/^Z_|^ERR_STREAM_PREMATURE/.test(code)) return refuse('The archive of the chart is not a complete gzip file.')
  throw error
}

const checked = async (archive: Buffer): Promise<Buffer> =>
  archive.length <= maxArchiveBytes
    ? archive
    : refuse(`The chart is larger than ${maxArchiveBytes >> 20} MiB: leave out what it does not need.`)

/** Rejects with `chart_refused`. */
export const repackChart = async (archive: Buffer): Promise<Buffer> => {
  await checked(archive)
  try {
    const files = await readFiles(archive, { files: 0, bytes: 0 }, 0)
    const [top = ''] = files[0]?.path.split('/') ?? []
    if (
      files.some(({ path }) => !path.startsWith(`${top}/`)) ||
      !files.some(({ path }) => path === `${top}/Chart.yaml`)
    )
      refuse('The archive has no chart: it must be one folder with a Chart.yaml.')
    return await checked(await packFiles(files))
  } catch (error) {
    return refusedAs(error)
  }
}

/** The archive of a folder with a chart; its files by their paths in it. Rejects with `chart_refused`. */
export const packChart = async (files: readonly ChartFile[]): Promise<Buffer> => {
  if (!files.some(({ path }) => path === 'Chart.yaml'))
    refuse('The folder has no Chart.yaml: set the root path to the folder of the chart.')
  const room: Room = { files: 0, bytes: 0 }
  for (const { content } of files) take(room, content.length)
  try {
    const all = await checkInner(files, room, 0)
    return await checked(await packFiles(all.map(({ path, content }) => ({ path: `chart/${path}`, content }))))
  } catch (error) {
    return refusedAs(error)
  }
}

/** The text of a file at the top of a packed chart; null without it. Rejects with `chart_refused`. */
export const fileOfChart = async (archive: Buffer, name: string): Promise<string | null> => {
  try {
    const files = await readFiles(archive, { files: 0, bytes: 0 }, 0)
    return files.find(({ path }) => path.split('/').slice(1).join('/') === name)?.content.toString('utf8') ?? null
  } catch (error) {
    return refusedAs(error)
  }
}
