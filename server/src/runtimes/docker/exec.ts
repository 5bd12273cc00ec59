/** Commands in running containers. */
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'

interface ExecEnd {
  exitCode: number
  /** The first bytes of its output. */
  output: string
}

const headerBytes = 8
const usuallyKeptBytes = 4096

/** The content of the engine's frames, as far as they were kept. */
const payloadOf = (bytes: Buffer): string => {
  const parts: Buffer[] = []
  for (let at = 0; at + headerBytes <= bytes.length; ) {
    const end = at + headerBytes + bytes.readUInt32BE(at + 4)
    parts.push(bytes.subarray(at + headerBytes, end))
    at = end
  }
  return Buffer.concat(parts).toString('utf8')
}

/** Rejects with an `EngineError` if it cannot be run. An abort ends the wait; the engine cannot end the command. */
export const execIn = async (
  engine: Engine,
  id: string,
  command: string[],
  signal: AbortSignal,
  keptBytes = usuallyKeptBytes,
): Promise<ExecEnd> => {
  const body = { Cmd: command, AttachStdout: true, AttachStderr: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${id}/exec`, { body, signal })
  const start = { Detach: false, Tty: false }
  const printed = await engine.stream('POST', `/exec/${Id}/start`, { body: start, signal })
  const kept: Buffer[] = []
  let left = keptBytes
  for await (const chunk of printed as AsyncIterable<Buffer>) {
    if (left > 0) kept.push(chunk.subarray(0, left))
    left -= chunk.length
  }
  const { ExitCode } = await engine.call<{ ExitCode: number }>('GET', `/exec/${Id}/json`, { signal })
  return { exitCode: ExitCode, output: payloadOf(Buffer.concat(kept)) }
}

/** The container does not run at this moment. */
export const isDownNow = (error: unknown): boolean => isEngineError(error, 409)
