/** Graceful shutdown: requests in progress are answered before their connections close. Streams are not waited for. */
import type { ServerResponse } from 'node:http'
import type { FastifyInstance } from 'fastify'

/** Longer than any response takes; what still hangs then is cut. */
const patienceMs = 5000

/** Headers sent but not ended: a stream, which lasts as long as it has a reader. */
const isStream = (response: ServerResponse): boolean => response.headersSent && !response.writableEnded

/** Makes `app.close()` wait for responses in progress; new requests get 503 meanwhile. */
export const drainOnClose = (app: FastifyInstance): void => {
  const underWay = new Set<ServerResponse>()
  let tell = (): void => {}
  app.addHook('onRequest', async ({ headers }, { raw }) => {
    if (headers.upgrade !== undefined) return
    underWay.add(raw)
    raw.once('close', () => {
      underWay.delete(raw)
      tell()
    })
  })
  app.addHook('preClose', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    tell = () => {
      if ([...underWay].every(isStream)) resolve()
    }
    const timer = setTimeout(resolve, patienceMs)
    tell()
    await promise
    clearTimeout(timer)
  })
}
