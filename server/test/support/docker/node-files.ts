/** The Node that runs this test, and the libraries that it needs, as files of an image. */
import { readFile, realpath } from 'node:fs/promises'
import { librariesOf } from './libraries.ts'

/** By their paths in the image, without the first slash; all of them are for everybody to run. */
export const readNodeFiles = async (): Promise<Map<string, Buffer>> => {
  const program = await realpath(process.execPath)
  const files = new Map([['bin/node', await readFile(program)]])
  for (const library of await librariesOf(program)) files.set(library.slice(1), await readFile(library))
  return files
}
