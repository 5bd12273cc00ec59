/** A context of our own for the engine: a Dockerfile, and perhaps one file to copy. */
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { pack } from 'tar-stream'
import { readableOf, writableOf } from '../../lib/tar-streams.ts'
import { ownFolder } from '../preparation/context-shape.ts'
import { ownDockerfile } from '../preparation/own-dockerfile.ts'

interface OwnFile {
  name: string
  sizeBytes: number
  mode: number
  modifiedAt: Date
  read(): Readable
}

/** The file is in `ownFolder`. */
export const ownArchive = (dockerfile: string, file: OwnFile | null = null): Readable => {
  const archive = pack()
  const fill = async (): Promise<void> => {
    archive.entry({ name: ownDockerfile }, dockerfile)
    if (file !== null) {
      const { name, sizeBytes, mode, modifiedAt } = file
      const header = { name: `${ownFolder}/${name}`, size: sizeBytes, mode, mtime: modifiedAt }
      await pipeline(file.read(), writableOf(archive.entry(header)))
    }
    archive.finalize()
  }
  fill().catch((error: Error) => archive.destroy(error))
  return readableOf(archive)
}
