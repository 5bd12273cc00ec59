/** A clean end: requests under way are answered before their connections close. Streams are not waited for. */
import type { ServerResponse } from 'node:http'
import type { FastifyInstance } from 'fastify'

/** Longer than any answer takes; what hangs then is cut. */
const patienceMs = 5000

/** Its headers went out, its end did not: it goes on for as long as somebody reads. */
const isStream = (response: ServerResponse): boolean => response.headersSent && !response.writableEnded

/** Makes `app.close()` wait for the answers under way; new requests get 503 meanwhile. */
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
