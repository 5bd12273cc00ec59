/**
 * Creates the shop through the public API and deploys it: a database, its migration, a container from a private
 * registry, two applications and a cron job. Needs Node 20 or newer and nothing else.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const options = {
  server: { type: 'string', default: 'http://127.0.0.1:8080' },
  token: { type: 'string', default: process.env.SLIPWAY_TOKEN ?? '' },
  repository: { type: 'string', default: '' },
  branch: { type: 'string', default: 'main' },
  folder: { type: 'string', default: '/' },
  registry: { type: 'string', default: '' },
  username: { type: 'string', default: '' },
  password: { type: 'string', default: process.env.REGISTRY_PASSWORD ?? '' },
  tag: { type: 'string', default: '1' },
  environment: { type: 'string', default: 'shop' },
}

/** Asks the API; an answer that is not a success is an error with the API's own words. */
const createApi =
  ({ server, token }) =>
  async (method, path, body) => {
    const answer = await fetch(server + path, {
      method,
      headers: {
        authorization: `Token ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    }).catch(() => {
      throw new Error(`${server} does not answer: is Slipway running there?`)
    })
    const text = await answer.text()
    const read = text === '' ? null : JSON.parse(text)
    if (!answer.ok) {
      const fields = (read?.details ?? []).map(({ field, message }) => `\n  ${field} ${message}`).join('')
      throw new Error(`${method} ${path}: ${answer.status} ${read?.message}${fields}`)
    }
    return read
  }

const port = (isPublic) => ({
  internal_port: 8080,
  external_port: 443,
  protocol: 'HTTP',
  publicly_accessible: isPublic,
})

const small = { cpu: 100, memory: 64 }

/** The folder of a service in the repository. */
const sourceOf = ({ repository: url, branch, folder }, name) => ({
  git_repository: { url, branch, root_path: `${folder.replace(/\/$/, '')}/${name}` },
  dockerfile_path: 'Dockerfile',
})

const readyWhenListening = {
  readiness_probe: {
    type: { tcp: { port: 8080 } },
    initial_delay_seconds: 0,
    period_seconds: 1,
    timeout_seconds: 1,
    success_threshold: 1,
    failure_threshold: 30,
  },
}

const createPlace = async (api, { environment: name }) => {
  const organization = (await api('GET', '/organization')).results[0]
  const { results } = await api('GET', `/organization/${organization.id}/project`)
  const project =
    results.find((one) => one.name === 'Shop') ??
    (await api('POST', `/organization/${organization.id}/project`, { name: 'Shop' }))
  const environment = await api('POST', `/project/${project.id}/environment`, { name, mode: 'DEVELOPMENT' })
  return { organizationId: organization.id, environmentId: environment.id, at: `/environment/${environment.id}` }
}

/** The registry with its login: one for all shops, which keeps the login that was given last. */
const saveRegistry = async (api, { organizationId }, { registry: url, username, password }) => {
  const path = `/organization/${organizationId}/containerRegistry`
  const body = { name: 'shop', kind: 'GENERIC_CR', url, config: { username, password } }
  const known = (await api('GET', path)).results.find((one) => one.name === body.name)
  return known === undefined ? api('POST', path, body) : api('PUT', `${path}/${known.id}`, body)
}

const createServices = async (api, place, args) => {
  const { id: registryId } = await saveRegistry(api, place, args)
  const prices = { registry_id: registryId, image_name: 'shop/prices', tag: args.tag }
  const application = (name, isPublic) => ({
    name,
    build_mode: 'DOCKER',
    ...sourceOf(args, name),
    ...small,
    ports: [port(isPublic)],
    healthchecks: readyWhenListening,
  })
  return {
    database: await api('POST', `${place.at}/database`, {
      name: 'main',
      type: 'POSTGRESQL',
      version: '16',
      mode: 'CONTAINER',
    }),
    migrate: await api('POST', `${place.at}/job`, {
      name: 'migrate',
      source: { docker: sourceOf(args, 'migrate') },
      schedule: { on_start: {} },
      ...small,
      max_nb_restart: 1,
      healthchecks: {},
    }),
    prices: await api('POST', `${place.at}/container`, {
      name: 'prices',
      ...prices,
      ...small,
      ports: [port(false)],
      healthchecks: readyWhenListening,
    }),
    orders: await api('POST', `${place.at}/application`, application('orders', false)),
    front: await api('POST', `${place.at}/application`, application('front', true)),
    nightly: await api('POST', `${place.at}/job`, {
      name: 'nightly',
      source: { image: prices },
      schedule: { cronjob: { scheduled_at: '0 3 * * *', entrypoint: 'echo', arguments: ['the night is quiet'] } },
      ...small,
      healthchecks: {},
    }),
  }
}

/** Gives a variable that Slipway made the name that a program asks for. */
const nameBuiltIn = async (api, service, family, ending, key) => {
  const { results } = await api('GET', `/${service}/${family}`)
  const found = results.find(
    (one) => one.scope === 'BUILT_IN' && one.key.startsWith('SLIPWAY_') && ending.test(one.key),
  )
  if (found === undefined) throw new Error(`${service} sees no variable like ${ending}.`)
  await api('POST', `/${service}/${family}/${found.id}/alias`, { key })
}

/** Built-in names hold the first eight digits of the id. */
const hostOf = ({ id }) => new RegExp(`_Z${id.slice(0, 8).toUpperCase()}_HOST_INTERNAL$`)

const wire = async (api, { migrate, orders, front, prices }) => {
  const databaseUrl = /_DATABASE_URL_INTERNAL$/
  await nameBuiltIn(api, `job/${migrate.id}`, 'secret', databaseUrl, 'DATABASE_URL')
  await nameBuiltIn(api, `application/${orders.id}`, 'secret', databaseUrl, 'DATABASE_URL')
  await nameBuiltIn(api, `application/${front.id}`, 'environmentVariable', hostOf(orders), 'ORDERS_HOST')
  await nameBuiltIn(api, `application/${front.id}`, 'environmentVariable', hostOf(prices), 'PRICES_HOST')
}

/** Creates all, deploys nothing. */
export const createShop = async (args) => {
  const api = createApi(args)
  const place = await createPlace(api, args)
  const services = await createServices(api, place, args)
  await wire(api, services)
  return { ...place, services }
}

const arrays = ['databases', 'jobs', 'containers', 'applications']

/** The state of every service by its name. */
const readStates = (statuses, services) => {
  const states = new Map(arrays.flatMap((name) => statuses[name]).map(({ id, state }) => [id, state]))
  return new Map(Object.entries(services).map(([name, { id }]) => [name, states.get(id)]))
}

const shownLines = 6

/** What went wrong: the last lines that the log has of every service that failed. */
const readErrors = async (api, { environmentId, services }, states) => {
  const lines = await api('GET', `/environment/${environmentId}/logs`)
  const failed = [...states].filter(([, state]) => state.endsWith('_ERROR')).map(([name]) => name)
  return failed.flatMap((name) => {
    const own = lines.filter(({ details }) => details.transmitter.id === services[name].id)
    return own.slice(-shownLines).map(({ message }) => `${name.padEnd(9)} ${message?.safe_message ?? ''}`)
  })
}

/** Deploys the environment, waits for the end, and answers the address of the page. */
export const deployShop = async (args, shop, tell = () => {}) => {
  const api = createApi(args)
  const { environmentId, services } = shop
  const { deployment_request_id: id } = await api('POST', `/environment/${environmentId}/deploy`)
  let told = new Map()
  for (;;) {
    const statuses = await api('GET', `/environment/${environmentId}/statuses`)
    const states = readStates(statuses, services)
    for (const [name, state] of states) if (told.get(name) !== state) tell(`${name.padEnd(9)} ${state}`)
    told = states
    if (statuses.environment.deployment_request_id !== id) break
    await pause(250)
  }
  const { status } = await api('GET', `/environment/deploymentStatus?deploymentRequestId=${id}`)
  if (status !== 'DEPLOYED')
    throw new Error([`The deployment ended as ${status}:`, ...(await readErrors(api, shop, told))].join('\n  '))
  const { results } = await api('GET', `/application/${services.front.id}/link`)
  return results[0].url
}

const main = async () => {
  const { values: args } = parseArgs({ options })
  for (const name of ['token', 'repository', 'registry', 'username', 'password'])
    if (args[name] === '') throw new Error(`--${name} is missing; README.md shows a call.`)
  const shop = await createShop(args)
  console.log(`The environment: ${shop.environmentId}`)
  const url = await deployShop(args, shop, console.log)
  console.log(`The page: ${url}`)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
  await main().catch((error) => {
    console.error(error.message)
    process.exitCode = 1
  })
