import { pino } from 'pino'
import { nameSources } from './traces.ts'

/** The server's own log: JSON lines on standard error, or nothing in tests (`level: 'silent'`). */
export type Log = Pick<ReturnType<typeof pino>, 'debug' | 'info' | 'warn' | 'error' | 'child'>

const errorOf = (error: Error): unknown => {
  const told = pino.stdSerializers.err(error)
  return typeof told?.stack === 'string' ? { ...told, stack: nameSources(told.stack) } : told
}

export const createLog = (level = 'info'): Log =>
  pino(
    { level, base: null, serializers: { err: errorOf }, timestamp: pino.stdTimeFunctions.isoTime },
    pino.destination({ fd: 2, sync: true }),
  )
