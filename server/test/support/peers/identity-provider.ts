/** A real OIDC issuer on loopback, with one client for each person: it issues JWTs, and its keys can be rotated. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after } from 'node:test'
import { exportJWK, generateKeyPair, importJWK, type JWK, type JWTPayload, SignJWT } from 'jose'
import Provider, { type ClientMetadata } from 'oidc-provider'

export const audience = 'slipway-test'

export interface IdentityProvider {
  issuer: string
  /** A JWT that the issuer itself made for a person called so. */
  tokenOf(person: string): Promise<string>
  /** A JWT made here with the issuer's key, to be wrong in one point. */
  sign(
    claims: JWTPayload,
    header?: { alg?: string; kid?: string; typ?: string; [name: string]: unknown },
  ): Promise<string>
  /** New keys in place of the old ones. */
  rotate(): Promise<void>
  /** Makes a client that people sign in at by a browser. */
  addBrowserClient(clientId: string, secret: string, redirectUri: string): void
  /** How often the keys were asked for. */
  keyRequests(): number
  /** The public key as it is published. */
  publicKey(): JWK
}

const people = ['alice', 'bob', 'carol', 'dave', 'erin', 'mallory']

const newKey = async (kid: string): Promise<JWK> => {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true })
  return { ...(await exportJWK(privateKey)), kid, alg: 'RS256', use: 'sig' }
}

const createProvider = (issuer: string, key: JWK, browsers: readonly ClientMetadata[]): Provider =>
  new Provider(issuer, {
    jwks: { keys: [key as never] },
    clients: [
      ...browsers,
      ...people.map((person) => ({
        client_id: person,
        client_secret: `secret-of-${person}`,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      })),
    ],
    // Its own pages take any name and password.
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true }),
    }),
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    conformIdTokenClaims: false,
    features: {
      devInteractions: { enabled: browsers.length > 0 },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (_context, client) => (people.includes(client.clientId) ? 'urn:slipway' : []),
        getResourceServerInfo: () => ({ scope: 'api', audience, accessTokenFormat: 'jwt', accessTokenTTL: 600 }),
      },
    },
    extraTokenClaims: (_context, token) => {
      const person = (token as { clientId?: string }).clientId ?? ''
      return { email: `${person}@example.com`, email_verified: person !== 'mallory', name: person }
    },
  })

export const startIdentityProvider = async (): Promise<IdentityProvider> => {
  let [key, generation, asked] = [await newKey('key-1'), 1, 0]
  const browsers: ClientMetadata[] = []
  let handle: ReturnType<Provider['callback']> = () => Promise.resolve()
  const server = createServer((request, response) => {
    if (request.url === '/jwks') asked += 1
    void handle(request, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  handle = createProvider(issuer, key, browsers).callback()
  after(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    issuer,
    keyRequests: () => asked,
    publicKey: () => ({ kty: key.kty!, n: key.n!, e: key.e!, kid: key.kid! }),
    async tokenOf(person) {
      const answer = await fetch(`${issuer}/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${Buffer.from(`${person}:secret-of-${person}`).toString('base64')}` },
        body: new URLSearchParams({ grant_type: 'client_credentials', resource: 'urn:slipway', scope: 'api' }),
      })
      const { access_token: token } = (await answer.json()) as { access_token?: string }
      if (token === undefined) throw new Error(`the issuer gave no token to ${person}: ${answer.status}`)
      return token
    },
    async sign(claims, header = {}) {
      const now = Math.floor(Date.now() / 1000)
      const usual = { iss: issuer, aud: audience, sub: 'somebody', iat: now, exp: now + 300 }
      const jwt = new SignJWT({ ...usual, ...claims }).setProtectedHeader({ alg: 'RS256', kid: key.kid!, ...header })
      return jwt.sign(await importJWK(key, 'RS256'))
    },
    addBrowserClient(clientId, secret, redirectUri) {
      browsers.push({
        client_id: clientId,
        client_secret: secret,
        grant_types: ['authorization_code'],
        redirect_uris: [redirectUri],
        response_types: ['code'],
      })
      handle = createProvider(issuer, key, browsers).callback()
    },
    async rotate() {
      generation += 1
      key = await newKey(`key-${generation}`)
      handle = createProvider(issuer, key, browsers).callback()
    },
  }
}
