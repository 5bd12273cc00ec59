/** Collects the outputs of an execution: never more than was requested, and never longer than allowed. */
import { buffer } from 'node:stream/consumers'
import { untilAborted } from '../lib/concurrency/waiting.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { TaskOutput, TaskOutputs } from './runtime.ts'

export interface OutputFile {
  size: number
  bytes: AsyncIterable<Uint8Array>
  close(): void
}

const tooLarge = (path: string, maxBytes: number): DeploymentError =>
  new DeploymentError('file_too_large', `The file ${path} is larger than ${Math.floor(maxBytes / 1024)} KiB.`)

const handOver = async (
  { size, bytes }: OutputFile,
  path: string,
  { to, deadlineMs }: NonNullable<TaskOutput['stream']>,
  signal: AbortSignal,
): Promise<TaskOutputs[string]> => {
  const late = AbortSignal.timeout(deadlineMs)
  const either = AbortSignal.any([signal, late])
  try {
    await untilAborted(to(bytes, either), either)
    return { bytes: size }
  } catch (error) {
    signal.throwIfAborted()
    if (!late.aborted) throw error
    const within = `within ${Math.round(deadlineMs / 1000)} s`
    return { error: new DeploymentError('output_timeout', `The file ${path} was not transferred ${within}.`) }
  }
}

const collectOne = async (
  { path, maxBytes, stream }: TaskOutput,
  open: (path: string) => Promise<OutputFile | null>,
  signal: AbortSignal,
): Promise<TaskOutputs[string] | null> => {
  const file = await open(path)
  if (file === null) return null
  try {
    if (file.size > maxBytes) return { error: tooLarge(path, maxBytes) }
    if (stream !== undefined) return await handOver(file, path, stream, signal)
    return { text: (await untilAborted(buffer(file.bytes), signal)).toString('utf8') }
  } finally {
    file.close()
  }
}

/** Texts first: a slow or failed stream must not prevent them. Streams only from a program that succeeded. */
export const collectOutputs = async (
  outputs: readonly TaskOutput[],
  isGood: boolean,
  open: (path: string) => Promise<OutputFile | null>,
  signal: AbortSignal,
): Promise<TaskOutputs> => {
  const texts = outputs.filter(({ stream }) => stream === undefined)
  const streams = isGood ? outputs.filter(({ stream }) => stream !== undefined) : []
  const found: [string, TaskOutputs[string]][] = []
  for (const output of [...texts, ...streams]) {
    const one = await collectOne(output, open, signal)
    if (one !== null) found.push([output.path, one])
  }
  return Object.fromEntries(found)
}
