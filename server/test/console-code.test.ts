/** The code that the console shows beside its forms has the same effect as the forms. */
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { extract } from 'tar-stream'
import { codeOf, type Names, templateCode } from '../../console/src/pages/create/code.ts'
import { isDatabase, type Template } from '../../console/src/templates/recipe.ts'
import type { ExportedKind } from '../src/kinds.ts'
import { exec } from '../src/lib/exec.ts'
import { newRegistry } from './cases/container.ts'
import { type Json, newPlace, startApi } from './support/api.ts'
import { loadEffectiveVariables } from './support/effective-variables.ts'

const api = await startApi({ idle: true })
const registry_id = await newRegistry(api)
const names: Names = { origin: api.url, organization: 'Ada', project: "the shop's", environment: 'staging' }
const git_repository = { url: 'https://github.com/example/shop.git', branch: 'main' }

/** As the forms of the console send them. */
const bodies: Record<ExportedKind, Record<string, unknown>> = {
  application: {
    name: 'web',
    git_repository,
    dockerfile_path: 'Dockerfile',
    build_mode: 'DOCKER',
    ports: [{ internal_port: 3000, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  },
  container: { name: 'it\'s "it" ${x}', image_name: 'library/nginx', tag: '1.27.2', registry_id, ports: [] },
  database: {
    name: 'store',
    type: 'POSTGRESQL',
    version: '16',
    mode: 'CONTAINER',
    accessibility: 'PRIVATE',
    storage: 10,
  },
  job: {
    name: 'nightly',
    source: { image: { image_name: 'library/alpine', tag: '3.20', registry_id } },
    schedule: { cronjob: { scheduled_at: '0 3 * * *', arguments: ['sh', '-c', 'echo it'] } },
    max_nb_restart: 2,
  },
  helm: {
    name: 'chart',
    source: { git_repository },
    values_override: { file: { raw: { values: [{ name: 'values.yaml', content: 'a: 1\n' }] } } },
  },
  terraform: {
    name: 'network',
    terraform_files_source: { git_repository },
    terraform_variables_source: { tf_var_file_paths: [], tf_vars: [{ key: 'region', value: 'eu', secret: false }] },
    engine: 'TERRAFORM',
    provider_version: { read_from_terraform_block: false, explicit_version: '1.9.7' },
    backend: { kubernetes: {} },
  },
}

const download = async (environmentId: string): Promise<string> => {
  const answer = await fetch(`${api.url}/environment/${environmentId}/terraformExport`, {
    headers: { authorization: `Token ${api.token}` },
  })
  const texts: string[] = []
  const reading = extract()
  reading.end(gunzipSync(Buffer.from(await answer.arrayBuffer())))
  for await (const entry of reading) texts.push((await buffer(entry)).toString())
  return texts.join('\n')
}

/** The programs that a displayed script calls besides those of every system. */
const tools = mkdtempSync(join(tmpdir(), 'slipway-tools-'))
after(() => rm(tools, { recursive: true }))
writeFileSync(
  join(tools, 'jq'),
  `#!${process.execPath}\nconst all = JSON.parse(require('node:fs').readFileSync(0, 'utf8'))\n` +
    `console.log(process.argv[3] === '.id' ? all.id : all.results[0].url)\n`,
)
writeFileSync(join(tools, 'package.json'), '{"type":"commonjs"}')
chmodSync(join(tools, 'jq'), 0o755)

const shell = async (script: string): Promise<void> => {
  const env = { PATH: `${tools}:${process.env.PATH ?? ''}`, TOKEN: api.token, NO_PROXY: '*' }
  const { code, stderr } = await exec('bash', ['-euo', 'pipefail', '-c', script], { env })
  assert.equal(code, 0, stderr)
}

for (const [kind, body] of Object.entries(bodies) as [ExportedKind, Record<string, unknown>][])
  test(`the shown commands of a new ${kind} make it, and the shown file is how it is exported`, async () => {
    const { environmentId } = await newPlace(api)
    const { curl, cli, terraform } = codeOf(kind, body, environmentId, names)
    await shell(curl.replace('curl ', 'curl -sSf '))
    const { results } = (await api.call('GET', `/environment/${environmentId}/services`)).body
    assert.deepEqual(
      results.map((each: Json) => each.name),
      [body.name],
    )
    assert.match(cli, /^qovery (application|container|database|cronjob|helm|terraform) deploy /m)
    assert.ok(cli.includes("--project 'the shop'\\''s'"), cli)
    const exported = new Set((await download(environmentId)).split('\n'))
    const lines = terraform.split('\n').filter((line) => !line.startsWith('#') && !line.includes('environment_id'))
    assert.deepEqual(
      lines.filter((line) => !exported.has(line)),
      [],
    )
    assert.ok(lines.length > 5, terraform)
  })

const folder = new URL('../../console/src/templates/', import.meta.url)

test('the shown script of every template makes the same services and variables, and its file names all of them', async () => {
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.json'))) {
    const template: Template = JSON.parse(readFileSync(new URL(file, folder), 'utf8'))
    const { environmentId } = await newPlace(api)
    const choice = { environmentId, name: 'it', registryId: registry_id }
    const { curl, terraform } = templateCode(template, choice, names)
    await shell(curl)
    const { results } = (await api.call('GET', `/environment/${environmentId}/services`)).body
    assert.equal(results.length, Object.keys(template.services).length, file)
    const { id } = results.find((each: Json) => each.name === 'it')
    const { app } = template.services
    const written = isDatabase(app!) ? {} : (app!.variables ?? {})
    const { env } = await loadEffectiveVariables(api.database, api.parts.sealer, id)
    for (const name of Object.keys(written)) {
      assert.ok((env[name] ?? '') !== '', `${file} ${name}`)
      assert.doesNotMatch(env[name]!, /\{\{|\$|undefined|null/, `${file} ${name}`)
    }
    for (const name of Object.keys(written)) assert.match(terraform, new RegExp(`\\b${name}\\b`), file)
    assert.equal((terraform.match(/\{/g) ?? []).length, (terraform.match(/\}/g) ?? []).length, file)
  }
})
