/**
 * Makes the services of a template through the public API: creates its services, then sets their variables. Does not
 * depend on the page or the browser. If a request is refused, the services made so far are deleted again, and the
 * refusal is thrown; if the page is closed in between, the services made so far remain, and were never deployed.
 */

interface TemplateDatabase {
  database: 'POSTGRESQL' | 'MYSQL' | 'MONGODB' | 'REDIS'
  version: string
  /** GB. */
  storage: number
}

interface TemplateContainer {
  /** On Docker Hub. */
  image: string
  tag: string
  /** Thousandths of a core, and MB. */
  cpu: number
  memory: number
  ports: { port: number; protocol: 'HTTP' | 'TCP'; public: boolean }[]
  /** GB, by the path in the container. */
  volumes?: Record<string, number>
  entrypoint?: string
  arguments?: string[]
  /**
   * `{{secret.name}}` is a generated secret, `{{key.url}}` the public address of a service of the template, and
   * `{{key.WORD}}` a built-in variable of one: `{{db.PASSWORD}}`.
   */
  variables?: Record<string, string>
}

export type TemplateService = TemplateDatabase | TemplateContainer

/** A file of this folder. The service `app` gets the chosen name, the names of the others begin with it. */
export interface Template {
  name: string
  /** Its description, in one sentence. */
  about: string
  category: string
  website: string
  /** How many characters each has. */
  secrets?: Record<string, number>
  services: Record<string, TemplateService>
  /** What to do after the first deployment. */
  note?: string
}

export type Call = (method: 'GET' | 'POST' | 'DELETE', path: string, body?: object) => Promise<unknown>

export interface Choice {
  environmentId: string
  /** Of `app`. */
  name: string
  /** The registry of Docker Hub. */
  registryId: string
}

interface Made {
  id: string
  name: string
  kind: 'container' | 'database'
}

export const isDatabase = (service: TemplateService): service is TemplateDatabase => 'database' in service

export const kindOf = (service: TemplateService): Made['kind'] => (isDatabase(service) ? 'database' : 'container')

const letters = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789'

/** Letters and digits, each as likely as the others. */
const randomText = (length: number): string => {
  const limit = 256 - (256 % letters.length)
  let text = ''
  while (text.length < length)
    for (const byte of crypto.getRandomValues(new Uint8Array(length)))
      if (byte < limit && text.length < length) text += letters[byte % letters.length]
  return text
}

const nameOf = (key: string, { name }: Choice): string => (key === 'app' ? name : `${name}-${key}`)

export const bodyOf = (key: string, service: TemplateService, choice: Choice): Record<string, unknown> => {
  const name = nameOf(key, choice)
  if (isDatabase(service)) {
    const { database: type, version, storage } = service
    return { name, type, version, mode: 'CONTAINER', accessibility: 'PRIVATE', storage }
  }
  const { image, tag, cpu, memory, ports, volumes = {}, entrypoint, arguments: words } = service
  return {
    name,
    registry_id: choice.registryId,
    image_name: image,
    tag,
    cpu,
    memory,
    ports: ports.map(({ port, protocol, public: isPublic }) => ({
      internal_port: port,
      external_port: isPublic ? 443 : port,
      protocol,
      publicly_accessible: isPublic,
    })),
    storage: Object.entries(volumes).map(([path, size]) => ({ type: 'FAST_SSD', size, mount_point: path })),
    ...(entrypoint === undefined ? {} : { entrypoint }),
    ...(words === undefined ? {} : { arguments: words }),
  }
}

const holes = /\{\{(\w+)\.(\w+)\}\}/g

/** True if a value contains a secret. */
const isSecret = (value: string): boolean =>
  [...value.matchAll(holes)].some(([, from, word]) => from === 'secret' || /^(PASSWORD|DATABASE_URL)/.test(word!))

interface Variable {
  name: string
  value: string
  scope: 'CONTAINER'
  is_secret: boolean
}

/** Fills a placeholder of a value, by the name before its dot and the word behind it. */
type Fill = (from: string, word: string) => string

export const variablesOf = (service: TemplateService, fill: Fill): Variable[] =>
  Object.entries(isDatabase(service) ? {} : (service.variables ?? {})).map(([name, value]) => ({
    name,
    value: value.replaceAll(holes, (_, from: string, word: string) => fill(from, word)),
    scope: 'CONTAINER',
    is_secret: isSecret(value),
  }))

/** The reference to a built-in variable of a service; `part` is the first eight digits of its id. */
export const builtIn = (service: TemplateService, part: string, word: string): string =>
  `{{SLIPWAY_${isDatabase(service) ? service.database : 'CONTAINER'}_Z${part}_${word}}}`

/** The services whose public addresses are used in values. */
const withUrls = ({ services }: Template): string[] => {
  const text = JSON.stringify(services)
  return Object.keys(services).filter((key) => text.includes(`{{${key}.url}}`))
}

const urlOf = async (id: string, call: Call): Promise<string> => {
  const { results } = (await call('GET', `/container/${id}/link`)) as { results: { url: string }[] }
  return (results[0]?.url ?? '').replace(/\/$/, '')
}

/** Makes all services of a template, in their order; `app` is among them. */
export const makeTemplate = async (template: Template, choice: Choice, call: Call): Promise<Record<string, Made>> => {
  const made: Record<string, Made> = {}
  try {
    for (const [key, service] of Object.entries(template.services)) {
      const kind = kindOf(service)
      const path = `/environment/${choice.environmentId}/${kind}`
      const { id, name } = (await call('POST', path, bodyOf(key, service, choice))) as { id: string; name: string }
      made[key] = { id, name, kind }
    }
    const secrets = Object.fromEntries(
      Object.entries(template.secrets ?? {}).map(([name, length]) => [name, randomText(length)]),
    )
    const urls: Record<string, string> = {}
    for (const key of withUrls(template)) urls[key] = await urlOf(made[key]!.id, call)
    const fill: Fill = (from, word) => {
      if (from === 'secret') return secrets[word]!
      if (word === 'url') return urls[from]!
      return builtIn(template.services[from]!, made[from]!.id.slice(0, 8).toUpperCase(), word)
    }
    for (const [key, service] of Object.entries(template.services)) {
      const vars = variablesOf(service, fill)
      if (vars.length === 0) continue
      await call('POST', `/container/${made[key]!.id}/environmentVariable/import`, { overwrite: true, vars })
    }
  } catch (error) {
    // They were never deployed. Services that cannot be deleted now can be deleted by hand.
    for (const { kind, id } of Object.values(made).reverse())
      await call('DELETE', `/${kind}/${id}`).catch(() => undefined)
    throw error
  }
  return made
}
