import { Writable } from 'node:stream'
import { pino } from 'pino'
import type { Log } from '../../src/lib/log.ts'

/** All lines that any part writes to its log after this, at every level, as they would be in the file. */
export const tapLog = (log: Log): (() => string) => {
  let logged = ''
  const sink = new Writable({
    write: (chunk, _encoding, done) => {
      logged += String(chunk)
      done()
    },
  })
  const writing = pino({ level: 'trace' }, sink)
  const levels = ['debug', 'info', 'warn', 'error'] as const
  Object.assign(log, Object.fromEntries(levels.map((level) => [level, writing[level].bind(writing)])))
  return () => logged
}
