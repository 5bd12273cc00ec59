/** The thread of read-json.ts: decodes and counts a text, and takes the wanted parts out of it. */
import { reduceJson, type Wanted } from './read-json.ts'
import { serveReads } from './serve-reads.ts'

serveReads<Wanted, string>(reduceJson)
