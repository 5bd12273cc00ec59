/** The description of the API, OpenAPI 3.1: a fold over the operations. */
import type { TSchema } from 'typebox'
import { version } from '../../lib/version.ts'
import { effectSentence } from './effects.ts'
import { archiveType, isList, isTextType, type Operation } from './operation.ts'

type Json = Record<string, unknown>

const errorSchema: Json = {
  type: 'object',
  required: ['status', 'error', 'message', 'detail', 'code', 'request_id'],
  properties: {
    status: { type: 'integer' },
    error: { type: 'string' },
    message: { type: 'string' },
    detail: { type: 'string' },
    code: { type: 'string', description: 'A stable code for programs.' },
    request_id: { type: 'string' },
    details: {
      type: 'array',
      items: { type: 'object', properties: { field: { type: 'string' }, message: { type: 'string' } } },
    },
  },
}

/** RFC 9457, for clients whose Accept asks for it. */
const problemSchema: Json = {
  allOf: [{ $ref: '#/components/schemas/Error' }],
  type: 'object',
  required: ['type', 'title', 'instance'],
  properties: {
    type: { type: 'string', format: 'uri', description: '`urn:slipway:` followed by the code.' },
    title: { type: 'string' },
    instance: { type: 'string', format: 'uri', description: '`urn:slipway:request:` followed by the request id.' },
  },
}

/** True for every path, and therefore not repeated for each operation. */
const description = `Git repositories, images, charts and modules become running services.

1. **Get a token.** The first start of the server prints one, and says in which file it is. Send it with every request, as
   \`Authorization: Token …\`; \`POST /organization/{organizationId}/apiToken\` creates others that can do less.
2. **Deploy.** [First deploy](/guides/first-deploy.md) leads from a repository to a running service,
   [API](/guides/api.md) through everything else: tokens, variables, waiting, logs, live updates, clones.
3. **Go on**: [databases](/guides/databases.md), [volumes](/guides/volumes.md), [health checks](/guides/health-checks.md),
   [cron jobs](/guides/cron-jobs.md), [domains](/guides/domains.md), [HTTPS](/guides/tls.md), [the router](/guides/router.md), [private sources](/guides/private-sources.md),
   [continuous integration](/guides/ci.md), [plan and rollback](/guides/plan-and-rollback.md),
   [webhooks](/guides/webhooks.md), [Terraform](/guides/terraform.md), [configuration](/guides/configuration.md).

HEAD is answered like GET, without the body; OPTIONS lists the methods of a path. A known path with another method gives
405 with Allow, a URL over 8192 characters 414, headers over 16 KiB 431. Errors are plain objects, or problem documents
(RFC 9457) if Accept is application/problem+json.

What was sent and has no effect here, because it is only stored or is not known, is named in the response header
Slipway-Not-Applied: JSON pointers into the body, and \`?name\` for a query parameter. docs/guides/fields.md lists all.`

const errorNames: Record<string, string> = {
  400: 'The request is not valid.',
  401: 'The token is missing or not valid.',
  403: 'The token lacks a scope.',
  404: 'It does not exist, or not in this organization.',
  406: 'The response is not available in any type that the Accept header allows.',
  409: 'The state of the resource does not allow this.',
  413: 'The body is too large.',
  415: 'The body is not JSON.',
  429: 'Too many requests: X-RateLimit-Reset says how many seconds to wait.',
  500: 'Internal error: quote the request id.',
  503: 'Temporarily unavailable; safe to retry.',
}

const error = (status: string): Json => ({
  description: errorNames[status],
  content: {
    'application/json': { schema: { $ref: '#/components/schemas/Error' } },
    'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } },
  },
})

type Named = Map<string, unknown>

/**
 * A schema as published: without our own marks; schemas with a title appear once, among the components. Two schemas
 * with the same title must be identical.
 */
const publicSchema = (schema: unknown, named: Named): unknown => {
  if (Array.isArray(schema)) return schema.map((inner) => publicSchema(inner, named))
  if (schema === null || typeof schema !== 'object') return schema
  const { title } = schema as { title?: string }
  if (title === undefined) return publicFields(schema, named)
  const body = publicFields(schema, named)
  const known = named.get(title)
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(body))
    throw new Error(`two different schemas have the title ${title}`)
  named.set(title, body)
  return { $ref: `#/components/schemas/${title}` }
}

const publicFields = (schema: object, named: Named): unknown => {
  const isUuid = (schema as { format?: string }).format === 'uuid'
  const kept = Object.entries(schema).filter(
    ([name]) => !/^(x-|~|title$)/.test(name) && !(isUuid && (name === 'pattern' || name === 'maxLength')),
  )
  const fields = Object.fromEntries(kept.map(([name, inner]) => [name, publicPart(name, inner, named)]))
  const effect = effectSentence(schema)
  if (effect === null) return fields
  return { ...fields, description: 'description' in fields ? `${fields.description} ${effect}` : effect }
}

/** The value of a keyword; names of fields are not keywords, and values are not schemas. */
const publicPart = (keyword: string, inner: unknown, named: Named): unknown => {
  if (keyword === 'default' || keyword === 'enum' || keyword === 'const') return inner
  if (keyword !== 'properties') return publicSchema(inner, named)
  const fields = Object.entries(inner as object)
  return Object.fromEntries(fields.map(([name, schema]) => [name, publicSchema(schema, named)]))
}

const errorsOf = (operation: Operation): string[] => {
  // A read can also request something that this installation cannot do.
  const errors = ['400', '401', '403', '404', '429', '500', '503']
  const isSocket = operation.produces === 'websocket'
  if (operation.answer !== undefined || (operation.produces !== undefined && !isSocket)) errors.push('406')
  // A body may be sent, and be wrong, even if none is expected.
  if (operation.method !== 'GET') errors.push('409', '413', '415')
  return errors.sort()
}

const success = (operation: Operation, named: Named): Json => {
  if (operation.produces === 'websocket') return { 101: { description: 'The connection becomes a websocket.' } }
  const isBytes = operation.produces === 'application/octet-stream'
  const content =
    operation.produces === 'text/event-stream' || isBytes || isTextType(operation.produces)
      ? { [operation.produces!]: { schema: isBytes ? { type: 'string', format: 'binary' } : { type: 'string' } } }
      : { 'application/json': { schema: publicSchema(operation.answer, named) } }
  const hasBody = operation.answer !== undefined || operation.produces !== undefined
  const empty =
    operation.emptyStatus === undefined ? {} : { [operation.emptyStatus]: { description: 'Nothing to do.' } }
  const unchanged = isList(operation) ? { 304: { description: 'Not changed since the ETag in If-None-Match.' } } : {}
  const done = { [operation.status]: { description: 'Done.', ...(hasBody ? { content } : {}) } }
  return { ...done, ...otherAnswer(operation, named), ...empty, ...unchanged }
}

/** With the same status it is an alternative to an answer without a body. */
const otherAnswer = ({ other, status }: Operation, named: Named): Json => {
  if (other === undefined) return {}
  const content = { 'application/json': { schema: publicSchema(other.answer, named) } }
  const done = other.status === status ? 'Done, without a body. ' : ''
  return { [other.status]: { description: `${done}${other.description}`, content } }
}

const parametersOf = (operation: Operation, named: Named): Json[] => {
  const names = [...operation.path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!)
  const inPath = names.map((name) => ({
    name,
    in: 'path',
    required: true,
    schema: name.endsWith('Id') ? { type: 'string', format: 'uuid' } : { type: 'string', maxLength: 255 },
  }))
  const required = new Set((operation.query as { required?: string[] } | undefined)?.required ?? [])
  const inQuery = Object.entries(operation.query?.properties ?? {}).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.has(name),
    schema: publicSchema(schema as TSchema, named),
  }))
  return [...inPath, ...inQuery]
}

const bodyOf = (operation: Operation, named: Named): Json => {
  if (operation.consumes === archiveType)
    return {
      requestBody: { required: true, content: { [archiveType]: { schema: { type: 'string', format: 'binary' } } } },
    }
  if (operation.consumes !== undefined)
    return { requestBody: { required: true, content: { [operation.consumes]: { schema: { type: 'string' } } } } }
  if (operation.body === undefined) return {}
  const schema = publicSchema(operation.body, named)
  return { requestBody: { required: operation.bodyOptional !== true, content: { 'application/json': { schema } } } }
}

const longSummary = 60

/**
 * The menu of `/docs` shows summaries: the part of a long one after its first comma or colon goes into the
 * description.
 */
const summaryOf = ({ summary }: Operation): { summary: string; more: string } => {
  const [first = summary] = summary.split(/; |: |, | \(/)
  const isLong = summary.includes('; ') || summary.length > longSummary
  return isLong && first !== summary ? { summary: first, more: `${summary}. ` } : { summary, more: '' }
}

const describeOperation = (operation: Operation, named: Named): Json => ({
  operationId: operation.id,
  tags: [operation.tag],
  summary: summaryOf(operation).summary,
  description: `${summaryOf(operation).more}Scope: ${operation.scope}${operation.reads === 'sensitive' ? ' (Deploy alone is not enough)' : ''}.`,
  parameters: parametersOf(operation, named),
  ...bodyOf(operation, named),
  responses: {
    ...success(operation, named),
    ...Object.fromEntries(errorsOf(operation).map((status) => [status, { $ref: `#/components/responses/${status}` }])),
  },
})

/** The complete description, ready to be written as JSON. */
export const describe = (operations: readonly Operation[]): Json => {
  const paths: Record<string, Json> = {}
  const named: Named = new Map()
  for (const operation of operations) {
    paths[operation.path] ??= {}
    paths[operation.path]![operation.method.toLowerCase()] = describeOperation(operation, named)
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Slipway',
      version,
      description,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ token: [] }, { bearer: [] }],
    tags: [...new Set(operations.map((operation) => operation.tag))].map((name) => ({
      name,
      // The default names of groups are longer than necessary.
      'x-displayName': name.replace(/ Main Calls$/, ''),
    })),
    paths,
    components: {
      securitySchemes: {
        token: { type: 'apiKey', in: 'header', name: 'Authorization', description: '`Token <API token>`' },
        bearer: { type: 'http', scheme: 'bearer' },
      },
      responses: Object.fromEntries(Object.keys(errorNames).map((status) => [status, error(status)])),
      schemas: {
        Error: errorSchema,
        Problem: problemSchema,
        ...Object.fromEntries([...named].sort(([a], [b]) => (a < b ? -1 : 1))),
      },
    },
  }
}
