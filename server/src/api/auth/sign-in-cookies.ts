/**
 * The sign-in cookies. A cookie proves that we issued it, to this browser: each is signed together with its name, and
 * over https its name begins with `__Host-`, which browsers accept from this exact host only. Over plain http a
 * neighboring host could plant a cookie of its own: use that on your own machine only.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

export interface Cookies {
  write(request: FastifyRequest, reply: FastifyReply, name: string, value: object, seconds: number): void
  clear(request: FastifyRequest, reply: FastifyReply, name: string): void
  /** Null for one that is missing, changed, expired or sent twice. */
  read(request: FastifyRequest, name: string): Record<string, unknown> | null
}

const maximumLength = 4000

export const isSecure = ({ protocol }: FastifyRequest): boolean => protocol === 'https'

export const nameFor = (request: FastifyRequest, name: string): string => (isSecure(request) ? `__Host-${name}` : name)

const add = (request: FastifyRequest, reply: FastifyReply, name: string, text: string, seconds: number): void => {
  const where = isSecure(request) ? 'Path=/; Secure' : 'Path=/auth'
  const cookie = `${nameFor(request, name)}=${text}; ${where}; Max-Age=${seconds}; HttpOnly; SameSite=Lax`
  reply.header('set-cookie', cookie)
}

/** The values of all cookies of this name. */
export const sentAs = (request: FastifyRequest, name: string): string[] =>
  (request.headers.cookie ?? '')
    .split(';')
    .map((each) => each.trim())
    .filter((each) => each.startsWith(`${name}=`))
    .map((each) => each.slice(name.length + 1))

const parse = (text: string): Record<string, unknown> =>
  JSON.parse(Buffer.from(text, 'base64url').toString('utf8')) as Record<string, unknown>

/** `now` in milliseconds since 1970: the expiry of a cookie is not left to the browser. */
export const createCookies = (key: Buffer, now: () => number): Cookies => {
  const sign = (name: string, text: string): Buffer => createHmac('sha256', key).update(`${name}=${text}`).digest()
  return {
    write(request, reply, name, value, seconds) {
      const until = now() + seconds * 1000
      const text = Buffer.from(JSON.stringify({ ...value, until })).toString('base64url')
      const signature = sign(nameFor(request, name), text).toString('base64url')
      add(request, reply, name, `${text}.${signature}`, seconds)
    },
    clear: (request, reply, name) => add(request, reply, name, '', 0),
    read(request, name) {
      const found = sentAs(request, nameFor(request, name))
      const [text = '', signature = ''] = found.length === 1 ? found[0]!.split('.') : []
      const given = Buffer.from(signature, 'base64url')
      const expected = sign(nameFor(request, name), text)
      if (text.length > maximumLength || given.length !== expected.length || !timingSafeEqual(given, expected))
        return null
      const value = parse(text)
      return typeof value.until === 'number' && value.until > now() ? value : null
    },
  }
}
