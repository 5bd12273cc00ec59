/**
 * Where an operation writes the parts of its answer besides the result: to an HTTP reply, or to a socket, which has no
 * headers.
 */
import type { ServerResponse } from 'node:http'
import type { FastifyReply } from 'fastify'

export interface Answerer {
  setHeader(name: string, value: string): void
  /** For streams: takes over the raw response, with the headers that it has so far. */
  hijack(): ServerResponse
}

export const answerWith = (reply: FastifyReply): Answerer => ({
  setHeader(name, value) {
    // `Vary` is added to the values that every answer has.
    const before = name === 'vary' ? reply.getHeader('vary') : undefined
    reply.header(name, before === undefined ? value : `${before}, ${value}`)
  },
  hijack() {
    const headers = reply.getHeaders()
    reply.hijack()
    for (const [name, value] of Object.entries(headers)) if (value !== undefined) reply.raw.setHeader(name, value)
    return reply.raw
  },
})

export const answerOnSocket: Answerer = {
  setHeader() {},
  hijack() {
    throw new Error('a socket has no HTTP response to take over')
  },
}
