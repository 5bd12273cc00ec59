/**
 * The streams of tar-stream as Node streams. They behave alike (`pipe`, `pipeline`, events), but their types are from
 * another library, hence the casts.
 */
import type { Readable, Writable } from 'node:stream'
import type { Pack } from 'tar-stream'

export const readableOf = (archive: Pack): Readable => archive as unknown as Readable

export const writableOf = (entry: ReturnType<Pack['entry']>): Writable => entry as unknown as Writable
