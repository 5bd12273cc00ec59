import { pino } from 'pino'

/** The server's own log: JSON lines on standard error, or nothing in tests (`level: 'silent'`). */
export type Log = Pick<ReturnType<typeof pino>, 'debug' | 'info' | 'warn' | 'error' | 'child'>

export const createLog = (level = 'info'): Log =>
  pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, pino.destination({ fd: 2, sync: true }))
