/** The thread of read-json.ts: decodes and counts a text, and takes the wanted parts out of it. */
import { type JsonRequest, reduceJson } from './read-json.ts'
import { serveReads } from './serve-reads.ts'

serveReads<JsonRequest, string>(reduceJson)
