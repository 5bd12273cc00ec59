/**
 * Credentials that name a Docker engine: their fields, and the connection to the engine before they are stored.
 * Promises that the engine of stored credentials was reached, is new enough, and is not the engine of this server.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { isIPv4, isIPv6 } from 'node:net'
import type { Context } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import { Maybe, Secret, Text } from '../../api/operations/schema.ts'
import {
  connectionOf,
  type EngineFacts,
  type EngineSecrets,
  type EngineSpec,
  type Engines,
} from '../../clusters/engines.ts'
import type { SshConnection, TcpConnection } from '../../lib/docker/engine-connection.ts'
import { explainEngine } from '../../lib/docker/engine-errors.ts'
import { parseHostKeys, refuseKey } from '../../lib/docker/ssh-tunnel.ts'
import { badRequest, forbidden, invalidField, unavailable } from '../../lib/errors.ts'
import type { Secret as Sealed } from '../../lib/secret.ts'
import { refuseUnusualKey } from '../../lib/usual-key.ts'

const pem = 65_536

export const engineFields = {
  engine_url: Maybe(
    Text(512, {
      description:
        'The Docker engine of clusters with these credentials: tcp://host:2376 with TLS, ssh://user@host, or unix:///path for a socket that the operator has listed. The connection is tested before it is stored; empty removes the engine.',
    }),
  ),
  engine_ca_certificate: Maybe(Text(pem, { description: 'For a tcp:// engine: the CA of its certificate, PEM.' })),
  engine_client_certificate: Maybe(Text(pem, { description: 'For a tcp:// engine: our client certificate, PEM.' })),
  engine_client_key: Maybe(Secret(pem)),
  engine_ssh_key: Maybe(Secret(pem)),
  engine_ssh_host_keys: Maybe(
    Text(16_384, {
      description:
        'For an ssh:// engine: the public keys of its machine, as printed by ssh-keyscan. No others are accepted.',
    }),
  ),
  engine_service_address: Maybe(
    Text(64, {
      description:
        'IPv4 address of that machine on which services are published for this server, best one of a private network; default the address that the engine is reached at.',
    }),
  ),
}

const optional = { engine_service_address: (): undefined => undefined }

/** One way to authenticate with a provider. */
export interface Form {
  objectType: string
  /** The value of the field that selects the form; for an engine the scheme of its address. */
  choice?: string
  needs: readonly string[]
  may?: Readonly<Record<string, (spec: Spec) => unknown>>
}

/** The fields for each scheme of address, as forms of credentials. */
export const engineForms: readonly Form[] = [
  { objectType: 'OTHER', needs: [] },
  {
    objectType: 'OTHER',
    choice: 'tcp',
    needs: ['engine_url', 'engine_ca_certificate', 'engine_client_certificate', 'engine_client_key'],
    may: optional,
  },
  {
    objectType: 'OTHER',
    choice: 'ssh',
    needs: ['engine_url', 'engine_ssh_key', 'engine_ssh_host_keys'],
    may: optional,
  },
  { objectType: 'OTHER', choice: 'unix', needs: ['engine_url'], may: optional },
]

export const engineFormOf = ({ engine_url: url }: Spec): Form =>
  engineForms.find(({ choice }) => choice !== undefined && String(url ?? '').startsWith(`${choice}://`)) ??
  engineForms[0]!

const readKey = (pem: Sealed): KeyObject => {
  try {
    return createPrivateKey(pem.reveal())
  } catch {
    throw invalidField('/engine_client_key', 'is not a private key in PEM without a passphrase')
  }
}

const checkPem = (spec: EngineSpec, secrets: EngineSecrets): void => {
  const certificates = ['engine_ca_certificate', 'engine_client_certificate'] as const
  for (const name of certificates)
    try {
      new X509Certificate(spec[name]!)
    } catch {
      throw invalidField(`/${name}`, 'is not a certificate in PEM')
    }
  const key = readKey(secrets.engine_client_key!)
  const unusual = refuseUnusualKey(key)
  if (unusual !== null) throw invalidField('/engine_client_key', `is not used: ${unusual}`)
  if (!new X509Certificate(spec.engine_client_certificate!).checkPrivateKey(key))
    throw invalidField('/engine_client_key', 'does not belong to `engine_client_certificate`')
}

const checkSsh = async (spec: EngineSpec, secrets: EngineSecrets): Promise<void> => {
  const reason = await refuseKey(secrets.engine_ssh_key!.reveal())
  if (reason !== null) throw invalidField('/engine_ssh_key', `${reason}: give a private key without a passphrase`)
  if (parseHostKeys(spec.engine_ssh_host_keys!).length === 0)
    throw invalidField('/engine_ssh_host_keys', 'has no public key: use the lines printed by ssh-keyscan')
}

const checkSocket = ({ principal }: Context, engines: Engines, path: string): void => {
  if (!engines.sockets.includes(path))
    throw invalidField(
      '/engine_url',
      "a socket on this server's machine must be listed by the operator in SLIPWAY_ENGINE_SOCKETS",
    )
  if (!principal.isOperator) throw forbidden("A socket on this server's machine requires the operator's token.")
}

const checkServiceAddress = async (engines: Engines, address: string | undefined): Promise<void> => {
  if (address === undefined || address === '') return
  if (!isIPv4(address)) throw invalidField('/engine_service_address', 'must be an IPv4 address')
  await engines.pin(address, 22).catch((error: unknown) => {
    throw invalidField('/engine_service_address', explainEngine(error))
  })
}

/** By default services are published at the engine's own address. */
const checkOwnAddress = async (engines: Engines, { host, port }: TcpConnection | SshConnection): Promise<void> => {
  const { address } = await orRefused(engines.pin(host, port))
  if (isIPv6(address))
    throw invalidField('/engine_service_address', 'is required: services are published at an IPv4 address only')
}

const checkMs = 8000
const neededApi = [1, 41] as const

const isOld = (version: string): boolean => {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major < neededApi[0] || (major === neededApi[0] && minor < neededApi[1])
}

/** Why services cannot run on such an engine; null when they can. */
const refuseEngine = ({ apiVersion, version, os, architecture }: EngineFacts): string | null => {
  if (isOld(apiVersion)) return `Docker ${version.slice(0, 40)} is too old: the engine must be 20.10 or later.`
  if (os !== 'linux') return 'The engine does not run Linux containers.'
  if (!/^(amd64|arm64|x86_64|aarch64)$/.test(architecture))
    return 'The processor of that machine is neither amd64 nor arm64.'
  return null
}

export const isGiven = (value: unknown): boolean => value !== undefined && value !== ''

const orRefused = async <T>(asking: Promise<T>): Promise<T> =>
  asking.catch((error: unknown) => {
    throw invalidField('/engine_url', explainEngine(error))
  })

const ownId = (engines: Engines, signal: AbortSignal): Promise<string | null> =>
  engines.ownId(signal).catch((error: unknown) => {
    throw unavailable('engine_unavailable', 'The Docker engine of this server does not answer: try again.', 5, error)
  })

/** Connects to an engine and reads its identity; throws the caller's error. */
export const identify = async (context: Context, spec: EngineSpec, secrets: EngineSecrets): Promise<EngineFacts> => {
  const { engines } = context.parts.clusters
  if (engines === null) throw badRequest('This server connects only to its own Docker engine.')
  const connection = connectionOf(spec, secrets, engines.pin)
  if (connection.kind === 'local') checkSocket(context, engines, connection.socketPath)
  else if (!isGiven(spec.engine_service_address)) await checkOwnAddress(engines, connection)
  const signal = AbortSignal.timeout(checkMs)
  const facts = await orRefused(engines.identify(connection, signal))
  const refusal = refuseEngine(facts)
  if (refusal !== null) throw invalidField('/engine_url', refusal)
  if (facts.id === (await ownId(engines, signal)))
    throw invalidField('/engine_url', 'this is the Docker engine of this server, which is the default cluster')
  return facts
}

const checkFields = async (spec: EngineSpec, secrets: EngineSecrets, engines: Engines | null): Promise<void> => {
  if (engines !== null) await checkServiceAddress(engines, spec.engine_service_address)
  if (spec.engine_url.startsWith('tcp:')) checkPem(spec, secrets)
  if (spec.engine_url.startsWith('ssh:')) await checkSsh(spec, secrets)
}

export const identifyChecked = async (
  context: Context,
  spec: EngineSpec,
  secrets: EngineSecrets,
): Promise<EngineFacts> => {
  await checkFields(spec, secrets, context.parts.clusters.engines)
  return identify(context, spec, secrets)
}
