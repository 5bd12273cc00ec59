/**
 * Limits requests without a caller. Promises that no request is free: it either proves to be from a caller, whose own
 * limits count it, or is counted for its address and for all addresses together before anything is done for it. A
 * request without proof is counted unless its route says otherwise, so that new pages are limited by default. Does not
 * know what a request is for.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { allowanceHeaders, tooManyRequests } from './rate-limit.ts'
import type { Throttle } from './throttle.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route does nothing before it has authenticated the caller, and counts failures itself. */
    authenticates?: boolean
    /** For monitors, and cheap. */
    isUnlimited?: boolean
  }
  interface FastifyRequest {
    /** It was counted for its address. */
    isAnonymous: boolean
  }
}

export interface AnonymousLimit {
  /** Runs first for every request. Throws a 429. `carriesProof`: it has a token or a session, perhaps a wrong one. */
  admit(request: FastifyRequest, reply: FastifyReply, carriesProof: () => boolean): void
  /** The request is answered without authenticating its caller. Once, however often it is called. Throws a 429. */
  count(request: FastifyRequest, reply: FastifyReply): void
  /** The request has proved to be from an authorized sender. */
  forgive(request: FastifyRequest): void
}

export const createAnonymousLimit = (throttle: Throttle): AnonymousLimit => {
  const count = (request: FastifyRequest, reply: FastifyReply): void => {
    if (request.isAnonymous) return
    const allowance = throttle.take(request.ip)
    if (!allowance.admitted) {
      reply.headers(allowanceHeaders(allowance))
      throw tooManyRequests(allowance)
    }
    request.isAnonymous = true
  }
  return {
    count,
    admit(request, reply, carriesProof) {
      const { authenticates, isUnlimited } = request.routeOptions.config
      if (isUnlimited === true) return
      const isProved = (authenticates === true || request.is404) && request.method !== 'OPTIONS'
      if (!isProved || !carriesProof()) count(request, reply)
    },
    forgive(request) {
      if (request.isAnonymous) throttle.give(request.ip)
      request.isAnonymous = false
    },
  }
}
