/** The templates of the console: each becomes running services, through the public API only. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { type Call, isDatabase, makeTemplate, type Template } from '../../console/src/templates/recipe.ts'
import { newRegistry } from './cases/container.ts'
import { type Json, newPlace, startApi } from './support/api.ts'
import { loadEffectiveVariables } from './support/effective-variables.ts'
import { until } from './support/until.ts'

const folder = new URL('../../console/src/templates/', import.meta.url)
const templates = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .map((name): [string, Template] => [
    name.replace('.json', ''),
    JSON.parse(readFileSync(new URL(name, folder), 'utf8')),
  ])

const api = await startApi()
const registryId = await newRegistry(api)

const send: Call = async (method, path, body) => {
  const answer = await api.call(method, path, body)
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** The values of the services that have variables, as their programs see them. */
const valuesOf = async (made: Awaited<ReturnType<typeof makeTemplate>>): Promise<Record<string, string>> => {
  const all = await Promise.all(
    Object.values(made).map(({ id }) => loadEffectiveVariables(api.database, api.parts.sealer, id)),
  )
  return Object.assign({}, ...all.map(({ env }) => env))
}

test('there are at least 25 templates, with every type of database, and no two with the same name', () => {
  assert.ok(templates.length >= 25, `${templates.length}`)
  assert.equal(new Set(templates.map(([, { name }]) => name)).size, templates.length)
  const types = templates.flatMap(([, { services }]) =>
    Object.values(services).flatMap((each) => (isDatabase(each) ? [each.database] : [])),
  )
  assert.deepEqual([...new Set(types)].sort(), ['MONGODB', 'MYSQL', 'POSTGRESQL', 'REDIS'])
})

for (const [id, template] of templates)
  test(`${id} runs: its images are pinned, and its variables have their own values`, async () => {
    for (const service of Object.values(template.services))
      if (!isDatabase(service)) assert.match(service.tag, /\d/, `${service.image}:${service.tag}`)
    const { environmentId } = await newPlace(api)
    const made = await makeTemplate(template, { environmentId, name: id, registryId }, send)
    assert.equal(made.app?.name, id)
    await send('POST', `/environment/${environmentId}/deploy`)
    await until(
      async () => {
        const { state } = (await send('GET', `/environment/${environmentId}/status`)) as Json
        assert.doesNotMatch(state, /ERROR/)
        return state === 'DEPLOYED'
      },
      { what: `${id} to be deployed` },
    )
    const values = await valuesOf(made)
    for (const [key, service] of Object.entries(template.services)) {
      const written = Object.entries(isDatabase(service) ? {} : (service.variables ?? {}))
      const { id: parentId, kind } = made[key]!
      if (kind === 'database') continue
      const { results } = (await send('GET', `/variable?parent_id=${parentId}&scope=CONTAINER`)) as Json
      for (const [name, value] of written) {
        assert.ok((values[name] ?? '') !== '', `${name} is set`)
        assert.doesNotMatch(values[name]!, /\{\{|undefined/, name)
        const listed = results.find((each: Json) => each.key === name)
        assert.equal(listed.is_secret, /secret\.|PASSWORD|DATABASE_URL/.test(value), `${name} is read again`)
      }
    }
    await send('DELETE', `/environment/${environmentId}`)
  })

test('two services of the same template have different secrets', async () => {
  const [, grafana] = templates.find(([id]) => id === 'grafana')!
  const { environmentId } = await newPlace(api)
  const passwords = []
  for (const name of ['one', 'two']) {
    const made = await makeTemplate(grafana, { environmentId, name, registryId }, send)
    passwords.push((await valuesOf(made)).GF_SECURITY_ADMIN_PASSWORD)
  }
  for (const password of passwords) assert.match(password!, /^[A-Za-z0-9]{24}$/)
  assert.notEqual(passwords[0], passwords[1])
})

test('a template that is refused halfway leaves nothing behind', async () => {
  const [, wordpress] = templates.find(([id]) => id === 'wordpress')!
  const { environmentId } = await newPlace(api)
  await makeTemplate(wordpress, { environmentId, name: 'site', registryId }, send)
  const before = (await send('GET', `/environment/${environmentId}/services`)) as Json
  const choice = { environmentId, name: 'other', registryId: '00000000-0000-4000-8000-000000000000' }
  await assert.rejects(makeTemplate(wordpress, choice, send), /registry_id/)
  const deleted = async (): Promise<boolean> => {
    const { results } = (await send('GET', `/environment/${environmentId}/services`)) as Json
    return results.length === before.results.length
  }
  await until(deleted, { what: 'what was made to be deleted' })
})
