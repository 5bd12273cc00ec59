import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'

/**
 * The body of a request for one attempt. Nothing is read from the client before the target's connection is established
 * and asks for it; then `onTaken` is called. Ending this stream keeps the request itself intact for the next attempt.
 */
export const bodyForAttempt = (req: IncomingMessage, onTaken: () => void): Readable => {
  let taken = false
  const onData = (chunk: Buffer): void => {
    if (!body.push(chunk)) req.pause()
  }
  const onEnd = (): void => {
    body.push(null)
  }
  const body = new Readable({
    highWaterMark: 65_536,
    read() {
      if (!taken) {
        taken = true
        onTaken()
        req.on('data', onData).on('end', onEnd)
      }
      req.resume()
    },
    destroy(error, done) {
      req.off('data', onData).off('end', onEnd)
      done(error)
    },
  })
  return body
}
