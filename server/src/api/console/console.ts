/**
 * The web console: its page and files, and `/console/session`, where it signs in and out (`/console/ways` says how).
 * Everything else that it does is a request to the API like any other. An address that the API does not have is shown by
 * the page, to browsers only; the API's own addresses are never answered here.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, badRequest, notFound } from '../../lib/errors.ts'
import { type Role, scopesOfRole } from '../auth/permissions.ts'
import type { Principal } from '../auth/principal.ts'
import { type Assets, readAssets } from './assets.ts'
import { isOwnPage, type OpenedSession, refuseOpenly, type Sessions } from './sessions.ts'

const assetsPath = '/assets'
const sessionPath = '/console/session'
const maxBodyBytes = 16 * 1024
const maxTextLength = 8192

interface ConsoleParts {
  /** People can sign in at an issuer. */
  hasIssuer: boolean
  /** Where the build is; absent: no page, only sessions. */
  folder?: string | undefined
  sessions: Sessions
  authenticate(request: FastifyRequest, reply: FastifyReply): Promise<Principal>
  /** Counts and records a failed sign-in: answers the error to throw. */
  refuse(request: FastifyRequest, reply: FastifyReply, error: ApiError): Promise<ApiError>
}

export interface Console {
  /** Whether `answer` has a page for this request. */
  hasPage(request: FastifyRequest): boolean
  /** Answers with the page if a browser asks for one; false for everything else. */
  answer(request: FastifyRequest, reply: FastifyReply): boolean
}

const wantsPage = ({ method, headers }: FastifyRequest): boolean =>
  (method === 'GET' || method === 'HEAD') && headers.accept?.includes('text/html') === true

const membershipOf = (organizationId: string, scopes: ReadonlySet<string>, role: Role | null) => ({
  organization_id: organizationId,
  scopes: [...scopes],
  role: role === null ? null : { id: role.id, name: role.name },
  grants: role?.grants ?? null,
})

/** The caller and its rights, so that the page shows only actions that would work. */
const describe = ({ name, organizationId, scopes, role, within, account, isOperator, memberships }: Principal) => ({
  name,
  email: account?.email ?? null,
  is_person: account !== null,
  is_operator: isOperator,
  memberships:
    account === null
      ? [membershipOf(organizationId, within ?? scopes, role)]
      : memberships.map((each) => membershipOf(each.organizationId, scopesOfRole(each.role), each.role)),
})

const textIn = (body: unknown, name: 'token' | 'code'): string | null => {
  const value = (body as Record<string, unknown> | null)?.[name]
  return typeof value === 'string' && value.length <= maxTextLength ? value.trim() : null
}

const open = async (parts: ConsoleParts, request: FastifyRequest, reply: FastifyReply): Promise<OpenedSession> => {
  // Checked first: behind a proxy that is not trusted, the page's own origin looks like another one.
  refuseOpenly(request)
  // Otherwise another site could sign a user in to a different account.
  if (!isOwnPage(request))
    throw new ApiError(403, 'origin_not_allowed', 'Only the console itself can sign in here; other pages send a token.')
  const [token, code] = [textIn(request.body, 'token'), textIn(request.body, 'code')]
  if ((token === null) === (code === null)) throw badRequest('Send either a token or the code of a link.')
  try {
    return await (token === null
      ? parts.sessions.openByCode(request, reply, code!)
      : parts.sessions.openByToken(request, reply, token))
  } catch (error) {
    throw error instanceof ApiError && error.status === 401 ? await parts.refuse(request, reply, error) : error
  }
}

const addSession = (app: FastifyInstance, parts: ConsoleParts): void => {
  app.post(sessionPath, { bodyLimit: maxBodyBytes }, async (request, reply) => {
    const { key, expiresAt } = await open(parts, request, reply)
    return reply.code(201).send({ key, expires_at: expiresAt.toISOString() })
  })
  const config = { authenticates: true }
  app.get(sessionPath, { config }, async (request, reply) => describe(await parts.authenticate(request, reply)))
  app.get('/console/ways', () => ({ oidc: parts.hasIssuer }))
  app.delete(sessionPath, async (request, reply) => {
    await parts.sessions.close(request, reply)
    return reply.code(204).send()
  })
}

const addFiles = (app: FastifyInstance, assets: Assets): void => {
  app.get(`${assetsPath}/:name`, (request, reply) => {
    const { name } = request.params as { name: string }
    if (assets.sendFile(request, reply, name) === null) throw notFound()
    return reply
  })
}

export const addConsole = (app: FastifyInstance, parts: ConsoleParts): Console => {
  addSession(app, parts)
  const assets = parts.folder === undefined ? null : readAssets(parts.folder)
  if (assets !== null) addFiles(app, assets)
  const hasPage = (request: FastifyRequest): boolean => assets !== null && wantsPage(request)
  return {
    hasPage,
    answer(request, reply) {
      if (!hasPage(request)) return false
      assets!.sendPage(request, reply)
      return true
    },
  }
}
