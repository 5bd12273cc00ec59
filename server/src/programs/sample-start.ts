/**
 * The sample application of a first start, created through the public API like anything a user creates. Every part
 * first checks whether it exists, so a start that was killed is simply repeated.
 */
import type { App } from '../wiring/app.ts'

const sampleTimeoutMs = 170_000
const sampleName = 'hello'

type Call = <Answer = Record<string, unknown>>(method: string, path: string, body?: unknown) => Promise<Answer>

/** The sample is created through the public API, like anything a user creates. */
const callApi =
  (url: string, token: string): Call =>
  async (method, path, body) => {
    const answer = await fetch(url + path, {
      method,
      headers: {
        authorization: `Token ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text.slice(0, 300)}`)
    return text === '' ? {} : JSON.parse(text)
  }

type Named = { id: string; name: string }
type Status = { state: string; error?: { message: string } }

/** Reuses what a killed start has already created. */
const findOrCreate = async (call: Call, collection: string, body: { name: string }): Promise<Named> => {
  const { results } = await call<{ results: Named[] }>('GET', collection)
  return results.find((each) => each.name === body.name) ?? (await call<Named>('POST', collection, body))
}

const createSample = async (call: Call, organizationId: string, sampleUrl: string): Promise<string> => {
  const project = await findOrCreate(call, `/organization/${organizationId}/project`, { name: 'Sample' })
  const demo = { name: 'demo', mode: 'DEVELOPMENT' }
  const environment = await findOrCreate(call, `/project/${project.id}/environment`, demo)
  const hello = {
    name: sampleName,
    description: 'The sample deployed by the first start',
    git_repository: { url: sampleUrl, branch: 'main' },
    build_mode: 'DOCKER',
    dockerfile_path: 'Dockerfile',
    cpu: 250,
    memory: 64,
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  }
  const application = await findOrCreate(call, `/environment/${environment.id}/application`, hello)
  const status = await call('GET', `/application/${application.id}/status`)
  if (status.deployment_request_id === null) await call('POST', `/application/${application.id}/deploy`)
  return application.id
}

/** Waits for the end of the sample's deployment; throws its reason when it failed. */
const waitForSample = async (app: App, call: Call, applicationId: string): Promise<void> => {
  const signal = AbortSignal.timeout(sampleTimeoutMs)
  for (;;) {
    const { state, error } = await call<Status>('GET', `/application/${applicationId}/status`)
    if (state === 'RUNNING') return
    if (state === 'ERROR') {
      const { environment } = await call<{ environment: Named }>('GET', `/application/${applicationId}`)
      const reason = error === undefined ? 'its deployment failed.' : error.message
      throw new Error(`${reason} The whole log is at GET /environment/${environment.id}/logs`)
    }
    await app.parts.clock.sleep(100, signal)
  }
}

const findSample = async (app: App): Promise<string | null> => {
  const { database, clusters } = app.parts
  const [row] = await database.query<{ host: string; clusterId: string }>(
    `select r.host, e.spec ->> 'cluster_id' as "clusterId" from node n join node e on e.id = n.parent_id join node p on p.id = e.parent_id
       join route r on r.service_id = n.id and r.is_default
     where n.kind = 'application' and n.name = $1 and p.name = 'Sample' and p.kind = 'project' limit 1`,
    [sampleName],
  )
  return row === undefined ? null : (await clusters.of(row.clusterId)).ingress.url(row.host)
}

const wasSampleMade = async (app: App): Promise<boolean> => {
  const [row] = await app.parts.database.query(`select 1 from installation where name = 'sample'`)
  return row !== undefined
}

const rememberSample = async (app: App): Promise<void> => {
  await app.parts.database.query(
    `insert into installation (name, value) values ('sample', 'made') on conflict do nothing`,
  )
}

const makeSample = async (app: App, token: string, print: (line: string) => void): Promise<void> => {
  print('Deploying the sample application …')
  const call = callApi(app.url, token)
  const applicationId = await createSample(call, app.organizationId, app.sampleUrl)
  await waitForSample(app, call, applicationId)
  await rememberSample(app)
}

/**
 * Deploys the sample unless an earlier start did; returns its address, or null. If the sample cannot be deployed, the
 * start says so and continues.
 */
export const prepareSample = async (app: App, print: (line: string) => void): Promise<string | null> => {
  const { text: token } = app.adminToken
  // Without the token, another server creates it.
  if (app.parts.settings.sample && token !== null && !(await wasSampleMade(app)))
    await makeSample(app, token, print).catch((error: unknown) => {
      print(`The sample could not be deployed: ${(error as Error).message}`)
    })
  return findSample(app)
}
