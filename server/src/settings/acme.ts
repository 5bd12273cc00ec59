/** The settings of certificates. */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { AcmeSettings as Authority } from '../certificates/acme.ts'
import { type HostChallenge, hostChallenges } from '../certificates/authority.ts'
import { Secret } from '../lib/secret.ts'
import { type DnsSettings, dnsSettings, readDns } from './dns.ts'

export interface AcmeSettings extends Authority {
  challenge: HostChallenge
  /** For wildcards; undefined without a DNS provider. */
  dns: DnsSettings | undefined
}

export type Read = <T>(name: string, fallback: T, parse: (text: string) => { value: T } | string) => T

const letsEncrypt = 'https://acme-v02.api.letsencrypt.org/directory'

/** Refused without TLS. */
export const tlsSettings = [
  'SLIPWAY_HSTS_SECONDS',
  'SLIPWAY_ACME_DIRECTORY',
  'SLIPWAY_ACME_EMAIL',
  'SLIPWAY_ACME_EAB_KID',
  'SLIPWAY_ACME_EAB_HMAC',
  'SLIPWAY_ACME_CA_FILE',
  'SLIPWAY_ACME_CHALLENGE',
  ...dnsSettings,
] as const

const directory = (value: string): { value: string } | string => {
  const url = URL.parse(value)
  return url?.protocol === 'https:' && url.username === '' && url.hash === ''
    ? { value: url.href }
    : 'the https address of the directory of an ACME server'
}

const email = (value: string): { value: string } | string =>
  /^[^@\s,?&]+@[^@\s,?&]+$/.test(value) ? { value } : 'one e-mail address'

const base64url = (value: string): { value: Secret } | string =>
  /^[\w-]{16,1024}={0,2}$/.test(value) ? { value: new Secret(value) } : 'the HMAC key in base64url, as the CA shows it'

const caFile = (value: string): { value: string } | string => {
  try {
    const text = readFileSync(resolve(value), 'utf8')
    if (text.includes('-----BEGIN CERTIFICATE-----')) return { value: text }
  } catch {
    // As if it had none.
  }
  return 'the path of a readable file with PEM certificates'
}

const challenge = (value: string): { value: HostChallenge } | string => {
  const found = hostChallenges.find((kind) => kind === value.toLowerCase())
  return found === undefined ? `one of ${hostChallenges.join(', ')}` : { value: found }
}

export const readAcme = (read: Read, problems: string[]): AcmeSettings => {
  const kid = read<string | undefined>('SLIPWAY_ACME_EAB_KID', undefined, (value) => ({ value }))
  const hmacKey = read<Secret | undefined>('SLIPWAY_ACME_EAB_HMAC', undefined, base64url)
  return Object.freeze({
    directory: read('SLIPWAY_ACME_DIRECTORY', letsEncrypt, directory),
    email: read<string | undefined>('SLIPWAY_ACME_EMAIL', undefined, email),
    eab: kid === undefined || hmacKey === undefined ? undefined : Object.freeze({ kid, hmacKey }),
    ca: read<string | undefined>('SLIPWAY_ACME_CA_FILE', undefined, caFile),
    challenge: read<HostChallenge>('SLIPWAY_ACME_CHALLENGE', 'http-01', challenge),
    dns: readDns(read, problems),
  })
}
