/** Programs that read from and write to this server while they run: what they get, and how they end. */
import type { Task, TaskEnd } from './runtime.ts'

/** A program whose standard streams are connected to this server while it runs. */
export interface PipedTask extends Omit<Task, 'outputs' | 'attempt' | 'stopGraceMs'> {
  /** It reaches no network, and nothing reaches it. */
  isAlone?: boolean
}

/** Where the standard streams of a program lead. Slow readers slow it down; nothing is kept whole. */
export interface Pipes {
  /** What it reads; absent: nothing. It may end without having read all. */
  stdin?: AsyncIterable<Uint8Array>
  /** Takes what it writes, to the end; absent: it is dropped. */
  stdout?(bytes: AsyncIterable<Uint8Array>): Promise<void>
  /** The lines of its standard error; long ones are cut. */
  onLine(line: string): void
}

/** How a piped program ended. */
export type PipeEnd = Omit<TaskEnd, 'outputs'>
