import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'

/**
 * The body of a request for one attempt. Nothing is taken from the client before the target's connection stands and
 * asks for it; `onTaken` is called then. Ending this stream leaves the request itself whole for the next attempt.
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
