import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'

interface BodyEvents {
  /** The target asks for the body. */
  onTaken(): void
  /** Whether the target leaves bytes unread; and when it has all of them. */
  onWait(isWaiting: boolean): void
  onSent(): void
  /** More than `mostBytes` (0: no limit) have come. */
  onTooLarge(): void
}

/**
 * The body of a request for one attempt. Nothing is read from the client before the target's connection is established
 * and asks for it; then `onTaken` is called. Ending this stream keeps the request itself intact for the next attempt.
 */
export const bodyForAttempt = (req: IncomingMessage, mostBytes: number, events: BodyEvents): Readable => {
  let taken = false
  let bytes = 0
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length
    if (mostBytes > 0 && bytes > mostBytes) return void events.onTooLarge()
    if (body.push(chunk)) return
    req.pause()
    events.onWait(true)
  }
  const onEnd = (): void => {
    body.push(null)
  }
  const body = new Readable({
    highWaterMark: 65_536,
    read() {
      if (taken) events.onWait(false)
      else {
        taken = true
        events.onTaken()
        req.on('data', onData).on('end', onEnd)
      }
      req.resume()
    },
    destroy(error, done) {
      req.off('data', onData).off('end', onEnd)
      done(error)
    },
  })
  return body.once('end', () => events.onSent())
}
