/** Values of Google Cloud Secret Manager, with the key of a service account. */

import { createPrivateKey, type KeyObject } from 'node:crypto'
import { SignJWT } from 'jose'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { OutboundResponse } from '../../lib/net/outbound.ts'
import { refuseUnusualKey } from '../../lib/usual-key.ts'
import {
  askManager,
  badCredentials,
  fieldsOf,
  isTemporary,
  type ManagerPlace,
  mayNotRead,
  noSuchSecret,
  type ReadSecret,
  SecretFailed,
  textOfSecret,
  unexpected,
} from './reading.ts'

const scope = 'https://www.googleapis.com/auth/cloud-platform'
const grant = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const tokenHost = 'oauth2.googleapis.com'
const tokenUrl = `https://${tokenHost}/token`

interface Account {
  email: string
  key: KeyObject
  keyId: string | undefined
}

const badFile = (): SecretFailed => new SecretFailed('its `json_credentials` are not the JSON key of a service account')

/** The key file as Google issues it, or base64 of it. Only the account and its key are read. */
const accountOf = (text: string): Account => {
  try {
    const json = text.trimStart().startsWith('{') ? text : Buffer.from(text, 'base64').toString()
    const { client_email, private_key, private_key_id } = readJson(json) as Record<string, unknown>
    if (typeof client_email !== 'string' || typeof private_key !== 'string') throw badFile()
    const key = createPrivateKey(private_key)
    if (key.asymmetricKeyType !== 'rsa' || refuseUnusualKey(key) !== null) throw badFile()
    return { email: client_email, key, keyId: typeof private_key_id === 'string' ? private_key_id : undefined }
  } catch {
    throw badFile()
  }
}

const tokenOf = async (place: ManagerPlace, { email, key, keyId }: Account): Promise<string> => {
  const now = Math.floor(place.now().getTime() / 1000)
  const assertion = await new SignJWT({ scope })
    .setProtectedHeader({ alg: 'RS256', typ: 'JWT', ...(keyId === undefined ? {} : { kid: keyId }) })
    .setIssuer(email)
    .setAudience(tokenUrl)
    .setIssuedAt(now)
    .setExpirationTime(now + 600)
    .sign(key)
  const answer = await askManager(place, {
    method: 'POST',
    url: new URL('/token', place.addressOf(tokenHost)),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ grant_type: grant, assertion }).toString(),
  })
  const { access_token: token } = answer.status === 200 ? fieldsOf(answer) : {}
  if (typeof token === 'string' && /^[\x21-\x7e]{1,8192}$/.test(token)) return token
  throw isTemporary(answer.status) ? unexpected(answer) : badCredentials()
}

const namePattern = /^([A-Za-z0-9_-]{1,255})(?:\/versions\/(latest|\d{1,18}))?$/
/** Such as europe-west9. */
const isRegion = (region: string): boolean => /^[a-z]{2,20}-[a-z]{2,20}\d{1,2}$/.test(region)

const failureOf = (answer: OutboundResponse): SecretFailed => {
  if (answer.status === 401) return badCredentials()
  return answer.status === 403 ? mayNotRead() : unexpected(answer)
}

const readAt = async (place: ManagerPlace, token: string, host: string, path: string): Promise<string | null> => {
  const url = new URL(path, place.addressOf(host))
  const answer = await askManager(place, { method: 'GET', url, headers: { authorization: `Bearer ${token}` } })
  if (answer.status === 404) return null
  if (answer.status !== 200) throw failureOf(answer)
  const data = (fieldsOf(answer).payload as { data?: unknown } | null | undefined)?.data
  if (typeof data !== 'string') throw unexpected(answer)
  return textOfSecret(Buffer.from(data, 'base64'))
}

/** A reference is the name of a secret, or `name/versions/3`. It is looked for among global secrets, then in the region. */
export const googleSecrets = (
  place: ManagerPlace,
  { region, projectId }: { region: string; projectId: string },
  credentials: string,
): ReadSecret => {
  const account = accountOf(credentials)
  const project = `/v1/projects/${encodeURIComponent(projectId)}`
  let token: Promise<string> | undefined
  return async (reference) => {
    const [, name, version = 'latest'] = namePattern.exec(reference) ?? []
    if (name === undefined) throw new SecretFailed('the reference is not the name of a secret, or `name/versions/1`')
    token ??= tokenOf(place, account)
    const bearer = await token
    const secret = `secrets/${name}/versions/${version}:access`
    const global = await readAt(place, bearer, 'secretmanager.googleapis.com', `${project}/${secret}`)
    if (global !== null) return global
    if (!isRegion(region)) throw noSuchSecret()
    const host = `secretmanager.${region}.rep.googleapis.com`
    const regional = await readAt(place, bearer, host, `${project}/locations/${region}/${secret}`)
    if (regional === null) throw noSuchSecret()
    return regional
  }
}
