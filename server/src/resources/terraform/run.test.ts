import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type TerraformSpec, terraformRun } from './run.ts'

const kept = (more: Partial<TerraformSpec> = {}): TerraformSpec => ({
  terraform_files_source: {
    git_repository: {
      url: 'https://git.example/infra',
      branch: 'main',
      root_path: '/live/one/',
      git_token_id: null,
      provider: 'GITHUB',
    },
  },
  terraform_variables_source: { tf_var_file_paths: ['/a b.tfvars'], tf_vars: [] },
  backend: { kubernetes: {} },
  engine: 'OPEN_TOFU',
  provider_version: { explicit_version: '1.9.0' },
  timeout_sec: 60,
  job_resources: { cpu_milli: 500, ram_mib: 512 },
  ...more,
})

const contents = (spec: TerraformSpec, secrets: Record<string, string> = {}): Record<string, string> =>
  Object.fromEntries(terraformRun.files(spec, secrets).map(({ path, content }) => [path, content]))

test('each action is one word for the program in the image; what a user wrote is an argument of its own', () => {
  const { on, state, timeoutMs } = terraformRun.tasks(kept()).main!
  assert.deepEqual(on.START, {
    entrypoint: ['/bin/slipway-module'],
    arguments: ['apply', 'tofu', 'live/one', 'here', 'a b.tfvars'],
  })
  assert.equal(on.DELETE!.arguments![0], 'destroy')
  assert.deepEqual([state, timeoutMs, on.STOP], ['HERE', 60_000, undefined])
  const elsewhere = terraformRun.tasks(kept({ backend: { user_provided: {} } })).main!
  assert.deepEqual([elsewhere.state, elsewhere.on.UNLOCK], ['ELSEWHERE', undefined])
})

test('variables are in a file, secrets among them, and in no argument; lists and objects are kept as such', () => {
  const tf_vars = [
    { key: 'list', value: '["a"]', secret: false },
    { key: 'odd', value: '[not a list', secret: false },
    { key: 'password', secret: true },
  ]
  const spec = kept({ terraform_variables_source: { tf_vars } })
  const written = contents(spec, { 'tf_vars.password': 'hush' })['/slipway-input/variables.tfvars.json']!
  assert.deepEqual(JSON.parse(written), { list: ['a'], odd: '[not a list', password: 'hush' })
  assert.ok(!JSON.stringify([terraformRun.tasks(spec), terraformRun.source(spec)]).includes('hush'))
})

test('extra arguments are handed on one a line, for the actions that have them', () => {
  const spec = kept({ action_extra_arguments: { plan: ['-parallelism=2', '-target=x y'], other: ['z'] } })
  assert.deepEqual(contents(spec), { '/slipway-input/arguments.plan': '-parallelism=2\n-target=x y\n' })
})

test('the tool comes from the image that is named, at the version of the service unless the image has one', () => {
  const toolIn = (image: string, version = '1.9.0') => {
    const advanced = { advanced_settings: { 'build.engine_image': image } }
    const source = terraformRun.source({ ...kept({ provider_version: { explicit_version: version } }), ...advanced })
    return source.from === 'git' ? source.tool : undefined
  }
  const none = terraformRun.source(kept())
  assert.deepEqual(none.from === 'git' && none.tool, { name: 'tofu', fragment: null })
  assert.deepEqual(toolIn(''), { name: 'tofu', fragment: null })
  assert.equal(toolIn('registry.example:5000/tools/tofu')?.image, 'registry.example:5000/tools/tofu:1.9.0')
  assert.equal(toolIn('hashicorp/terraform:1.5')?.image, 'hashicorp/terraform:1.5')
  assert.equal(toolIn('hashicorp/terraform', '')?.image, 'hashicorp/terraform')
})
