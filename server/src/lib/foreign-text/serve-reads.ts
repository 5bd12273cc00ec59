/** The thread's side of threads.ts: one text after the other. */
import { parentPort } from 'node:worker_threads'
import { ForeignTextError } from './foreign-text-error.ts'

export interface ReadRequest<Job> {
  text: Uint8Array | string
  job: Job
}

export type ReadAnswer<Value> =
  | { kind: 'value'; value: Value }
  | { kind: 'refused'; code: ForeignTextError['code']; message: string }
  /** A fault of our own. */
  | { kind: 'failed'; message: string }

const textOf = (sent: Uint8Array | string): string =>
  typeof sent === 'string' ? sent : Buffer.from(sent.buffer, sent.byteOffset, sent.byteLength).toString()

/** Answers each text with the result of `read`; a `ForeignTextError` reaches the sender of the text. */
export const serveReads = <Job, Value>(read: (text: string, job: Job) => Value): void => {
  const readOne = ({ text, job }: ReadRequest<Job>): ReadAnswer<Value> => {
    try {
      return { kind: 'value', value: read(textOf(text), job) }
    } catch (error) {
      if (error instanceof ForeignTextError) return { kind: 'refused', code: error.code, message: error.message }
      return { kind: 'failed', message: String(error) }
    }
  }
  parentPort!.on('message', (request: ReadRequest<Job>) => parentPort!.postMessage(readOne(request)))
}
