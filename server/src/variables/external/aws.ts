/** Values of AWS Secrets Manager and of Parameter Store, by requests signed with an access key. */

import { type AwsKeys, signAws } from '../../lib/net/aws-signature.ts'
import type { OutboundResponse } from '../../lib/net/outbound.ts'
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

const isRegion = (region: string): boolean => /^[a-z]{2}(-[a-z]{2,20}){1,3}-\d{1,2}$/.test(region)

const hostOf = (service: string, region: string): string =>
  `${service}.${region}.amazonaws.com${region.startsWith('cn-') ? '.cn' : ''}`

const failures: Record<string, () => SecretFailed> = {
  ResourceNotFoundException: noSuchSecret,
  ParameterNotFound: noSuchSecret,
  ParameterVersionNotFound: noSuchSecret,
  AccessDeniedException: mayNotRead,
  UnrecognizedClientException: badCredentials,
  InvalidClientTokenId: badCredentials,
  InvalidSignatureException: badCredentials,
  SignatureDoesNotMatch: badCredentials,
  IncompleteSignature: badCredentials,
  ExpiredTokenException: badCredentials,
  MissingAuthenticationToken: badCredentials,
  ThrottlingException: () => new SecretFailed('it has too many requests at the moment', true),
  DecryptionFailure: () => new SecretFailed('it could not decrypt the secret'),
  InvalidKeyId: () => new SecretFailed('it could not decrypt the secret'),
}

const failureOf = (answer: OutboundResponse): SecretFailed => {
  if (isTemporary(answer.status)) return unexpected(answer)
  const word = String(fieldsOf(answer).__type ?? '')
    .split('#')
    .at(-1)!
  return Object.hasOwn(failures, word) ? failures[word]!() : unexpected(answer, word)
}

interface AwsAction {
  service: string
  target: string
  body(reference: string): object
  value(fields: Record<string, unknown>): string | Buffer | undefined
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

const secretsManager: AwsAction = {
  service: 'secretsmanager',
  target: 'secretsmanager.GetSecretValue',
  body: (reference) => ({ SecretId: reference }),
  value: ({ SecretString, SecretBinary }) =>
    textOf(SecretString) ?? (typeof SecretBinary === 'string' ? Buffer.from(SecretBinary, 'base64') : undefined),
}

const parameterStore: AwsAction = {
  service: 'ssm',
  target: 'AmazonSSM.GetParameter',
  body: (reference) => ({ Name: reference, WithDecryption: true }),
  value: ({ Parameter }) => textOf((Parameter as { Value?: unknown } | null | undefined)?.Value),
}

const readerOf =
  ({ service, target, body, value }: AwsAction) =>
  (place: ManagerPlace, region: string, keys: AwsKeys): ReadSecret => {
    if (!isRegion(region)) throw new SecretFailed('its region is not one of AWS')
    if (!/^\w{1,128}$/.test(keys.accessKey)) throw badCredentials()
    return async (reference) => {
      const request = {
        method: 'POST' as const,
        url: new URL('/', place.addressOf(hostOf(service, region))),
        headers: { 'content-type': 'application/x-amz-json-1.1', 'x-amz-target': target },
        body: JSON.stringify(body(reference)),
      }
      const headers = signAws({ ...request, region, service }, keys, place.now())
      const answer = await askManager(place, { ...request, headers })
      if (answer.status !== 200) throw failureOf(answer)
      const found = value(fieldsOf(answer))
      if (found === undefined) throw unexpected(answer)
      return textOfSecret(found)
    }
  }

export const awsSecrets = readerOf(secretsManager)
export const awsParameters = readerOf(parameterStore)
