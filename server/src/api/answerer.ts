/** Where an operation says what its answer has beside the result: on an HTTP reply, or on a socket, which has no headers. */
import type { ServerResponse } from 'node:http'
import type { FastifyReply } from 'fastify'

export interface Answerer {
  setHeader(name: string, value: string): void
  /** For streams: takes the answer out of the machinery's hands, with the headers that it has so far. */
  hijack(): ServerResponse
}

export const answerWith = (reply: FastifyReply): Answerer => ({
  setHeader(name, value) {
    // What else an answer varies with is said beside what every answer does.
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

/** A socket is answered by what is sent on it. */
export const answerOnSocket: Answerer = {
  setHeader() {},
  hijack() {
    throw new Error('a socket has no HTTP response to take over')
  },
}
