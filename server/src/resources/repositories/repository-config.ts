/**
 * Shared by container registries and Helm repositories: a kind, a URL that fits the kind, and a configuration with the
 * credentials that the kind requires. Promises that stored secrets are never sent to an address other than the one
 * they were given for.
 */
import Type from 'typebox'
import { type Context, type Operation, operation, ownOrganization, reading } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource.ts'
import { Flag, Maybe, OneOf, Open, Recorded, Results, Secret, Text } from '../../api/operations/schema.ts'
import { invalidField } from '../../lib/errors.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'

interface PlaceKind {
  /** The default. */
  url?: string
  /** The only hosts allowed for the kind. */
  hosts?: RegExp
  schemes: readonly string[]
  /** Required fields of the configuration: one of these sets. */
  needs?: readonly (readonly string[])[]
}

export type PlaceKinds = Record<string, PlaceKind>

const open = ['username', 'region', 'access_key_id', 'role_arn', 'scaleway_access_key', 'scaleway_project_id']
const azure = ['azure_tenant_id', 'azure_subscription_id']
const secrets = ['password', 'secret_access_key', 'scaleway_secret_key']

/** Fields that both have. `logins` are the fields of a login; `unused` says why the others are only recorded. */
export const commonConfig = (logins: readonly string[], unused: string) => {
  const all = {
    ...Object.fromEntries([...open, ...azure].map((name) => [name, Maybe(Text(2048))])),
    ...Object.fromEntries(secrets.map((name) => [name, Maybe(Secret(16_384))])),
  }
  const marked = Object.entries(all).map(([name, schema]) => [
    name,
    logins.includes(name) ? schema : Recorded(schema, unused),
  ])
  return Object.fromEntries(marked) as typeof all
}

/** Credentials of a cloud provider's registry: keys, or a role to assume. */
export const cloudKeys = [
  ['region', 'access_key_id', 'secret_access_key'],
  ['region', 'role_arn'],
]
export const scalewayKeys = [['region', 'scaleway_access_key', 'scaleway_secret_key']]

const objectOf = (value: unknown): Spec => (typeof value === 'object' && value !== null ? (value as Spec) : {})

const checkUrl = ({ parts }: Context, text: string, kind: PlaceKind): void => {
  const scheme = kind.schemes.find((each) => text.startsWith(`${each}://`))
  if (scheme === undefined) throw invalidField('/url', `must start with ${kind.schemes.join(':// or ')}://`)
  try {
    const url = parts.outbound.checkSyntax(scheme === 'oci' ? `https${text.slice(scheme.length)}` : text)
    if (kind.hosts !== undefined && !kind.hosts.test(url.hostname))
      throw invalidField('/url', `must be ${kind.url} for this kind`)
  } catch (error) {
    if (error instanceof OutboundRefused) throw invalidField('/url', error.message)
    throw error
  }
}

const urlOf = (context: Context, sent: unknown, kind: PlaceKind): string => {
  const url = typeof sent === 'string' && sent !== '' ? sent : kind.url
  if (url === undefined) throw invalidField('/url', 'is required for this kind')
  checkUrl(context, url, kind)
  return url
}

const isGiven = (value: unknown): boolean => typeof value === 'string' && value !== ''

/** Throws for a required field that neither the request nor the row has. */
const checkNeeds = (needs: PlaceKind['needs'], has: (name: string) => boolean): void => {
  if (needs === undefined || needs.some((set) => set.every(has))) return
  const missing = needs[0]!.find((name) => !has(name))!
  throw invalidField(`/config/${missing}`, 'is required for this kind')
}

const placeOfUrl = (url: unknown): string =>
  String(url)
    .replace(/^(\w+:\/\/[^/]*).*$/s, '$1')
    .toLowerCase()

/** Throws if a secret given for one address would be sent to another. */
const checkSecretsMove = ({ previous }: Change, next: Spec, kind: PlaceKind, sent: Spec): void => {
  if (previous === null) return
  const moved = previous.spec.kind !== next.kind || placeOfUrl(previous.spec.url) !== placeOfUrl(next.url)
  const used = ['password', ...(kind.needs ?? []).flat()]
  const kept = used.find((name) => previous.sealed[`config.${name}`] !== undefined && sent[name] === undefined)
  if (moved && kept !== undefined)
    throw invalidField(`/config/${kept}`, 'must be sent again when the kind or the host changes; empty removes it')
}

/** `validate` of the resource: completes URL and configuration for the kind. */
export const completePlace =
  (kinds: PlaceKinds) =>
  (body: Spec, context: Context, change: Change): Spec => {
    const { previous } = change
    const kind = kinds[String(body.kind)]!
    const sent = objectOf(context.body.config)
    // The configuration of another kind is irrelevant here.
    const other = previous !== null && previous.spec.kind !== body.kind
    const url = urlOf(context, other ? context.body.url : body.url, kind)
    const before = other ? {} : objectOf(previous?.spec.config)
    const config = { ...before, ...(other && context.body.config === undefined ? {} : objectOf(body.config)) }
    const next = { ...body, url, config }
    checkSecretsMove(change, next, kind, sent)
    checkNeeds(kind.needs, (name) =>
      isGiven(sent[name] ?? (config as Spec)[name] ?? previous?.sealed[`config.${name}`]),
    )
    return next
  }

export const availableKinds = (id: string, path: string, tag: string, kinds: PlaceKinds): Operation =>
  operation({
    id,
    ...reading,
    path,
    tag,
    summary: 'List the available kinds and the settings that each requires',
    area: 'projects',
    owner: ownOrganization,
    answer: Results(Type.Object({ kind: OneOf(Object.keys(kinds)), required_config: Open(), is_mandatory: Flag() })),
    run: async () => ({
      results: Object.entries(kinds).map(([kind, { needs = [[]], url }]) => ({
        kind,
        required_config: Object.fromEntries([
          ...(url === undefined ? [['url', 'string']] : []),
          ...needs[0]!.map((name) => [name, 'string']),
        ]),
        is_mandatory: false,
      })),
    }),
  })
