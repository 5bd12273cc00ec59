/**
 * The streams of tar-stream as those of Node. They behave alike (`pipe`, `pipeline`, events); only their types are of
 * another library, which is what the casts here pass over.
 */
import type { Readable, Writable } from 'node:stream'
import type { Pack } from 'tar-stream'

export const readableOf = (archive: Pack): Readable => archive as unknown as Readable

export const writableOf = (entry: ReturnType<Pack['entry']>): Writable => entry as unknown as Writable
