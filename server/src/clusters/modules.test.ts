import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { type ClusterModule, clusterModulesAt, filesOf, inputsFor, parseClusterModules, readsField } from './modules.ts'

const good = { source: '/etc/modules/eks', outputs: { kubeconfig: 'kubeconfig' } }
const parse = (AWS: unknown) => parseClusterModules(JSON.stringify({ AWS }))

test('a file of modules is read with its defaults, and what is wrong in it is said by name', () => {
  assert.deepEqual(parse(good), {
    AWS: { engine: 'terraform', ...good, inputs: {}, versions: [], timeoutMinutes: 60 },
  })
  for (const [fields, words] of [
    [{ ...good, sauce: 1 }, /that of AWS has an unknown field "sauce"/],
    [{ outputs: good.outputs }, /"source"/],
    [{ ...good, source: '../eks' }, /"source"/],
    [{ ...good, source: 'git::https://x/${y}' }, /"source"/],
    [{ ...good, engine: 'pulumi' }, /"engine"/],
    [{ ...good, inputs: { region: 'region' } }, /"inputs"/],
    [{ ...good, inputs: { region: { value: 1, more: 2 } } }, /"inputs"/],
    [{ ...good, outputs: { host: 'h' } }, /"outputs"/],
    [{ ...good, outputs: { kubeconfig: 'k', host: 'h', token: 't' } }, /"outputs"/],
    [{ ...good, versions: ['1.30', '1.30'] }, /"versions"/],
    [{ ...good, timeout_minutes: 0 }, /"timeout_minutes"/],
    [{ ...good, version: '1.0.0' }, /is a folder/],
    [[], /must be an object/],
  ] as [unknown, RegExp][])
    assert.match(String(parse(fields)), words)
  assert.match(String(parseClusterModules('{"OVH":{}}')), /"OVH" is none of them/)
  assert.match(String(parseClusterModules('{')), /JSON file/)
  assert.match(String(clusterModulesAt('/nowhere/modules.json')), /readable/)
})

const module = (over: Partial<ClusterModule>): ClusterModule => ({
  ...{ engine: 'terraform', source: 'org/eks/aws', inputs: {}, outputs: { kubeconfig: 'config' }, versions: [] },
  timeoutMinutes: 60,
  ...over,
})

const examples = new URL('../../../examples/cluster-modules/', import.meta.url).pathname

test('the file of the examples is taken, and names the variables and outputs that their modules have', () => {
  const modules = parseClusterModules(readFileSync(join(examples, 'cluster-modules.json'), 'utf8'))
  assert.ok(typeof modules !== 'string', String(modules))
  for (const [provider, { source, inputs, outputs }] of Object.entries(modules)) {
    const folder = join(examples, basename(source))
    const text = readdirSync(folder)
      .map((name) => readFileSync(join(folder, name), 'utf8'))
      .join('\n')
    const blocks = [...text.matchAll(/^(variable|output) "(\w+)" \{\n([\s\S]*?)^\}/gm)]
    const named = (kind: string) => blocks.filter(([, word]) => word === kind).map(([, , name]) => name!)
    const needed = blocks.filter(([, kind, , body]) => kind === 'variable' && !/^ {2}default/m.test(body!))
    for (const name of Object.keys(inputs)) assert.ok(named('variable').includes(name), `${provider} ${name}`)
    for (const [, , name] of needed) assert.ok(Object.hasOwn(inputs, name!), `${provider} needs ${name}`)
    for (const name of Object.values(outputs)) assert.ok(named('output').includes(name), `${provider} ${name}`)
    assert.match(text, /output "token" \{[^}]*sensitive = true/)
    assert.ok(!/version = "[^\d>]/.test(text.replaceAll(/source +=.*/g, '')), 'providers are pinned')
  }
})

test('inputs are fields by their pointers or values of the operator; what is not set leaves the default of the module', () => {
  const inputs = {
    name: '/name',
    size: '/advanced_settings/load_balancer.size',
    odd: '/a~1b',
    all: '',
    gone: '/gone',
    x: { value: [1] },
  }
  const document = { name: 'n', 'a/b': 1, advanced_settings: { 'load_balancer.size': 'lb-s' }, gone: null }
  assert.deepEqual(inputsFor(module({ inputs }), document), { name: 'n', size: 'lb-s', odd: 1, all: document, x: [1] })
  const reads = (field: string) => readsField(module({ inputs: { a: '/a', b: '/b/c' } }), field)
  assert.deepEqual(['/a', '/a/z', '/b', '/b/c', '/b/d', '/c'].map(reads), [
    'all',
    'all',
    'some',
    'all',
    'nothing',
    'nothing',
  ])
})

test('a module that the tool fetches is wrapped: its inputs are variables, its outputs are secrets', async () => {
  const [file] = await filesOf(module({ version: '2.1.0' }), { name: 'n' })
  assert.equal(file!.path, '/module/main.tf.json')
  assert.deepEqual(JSON.parse(file!.content), {
    variable: { name: {} },
    module: { cluster: { source: 'org/eks/aws', version: '2.1.0', name: '${var.name}' } },
    output: { config: { value: '${module.cluster.config}', sensitive: true } },
  })
})

test('a folder is read whole, without what the tool leaves in it, and refused when it is large or leads elsewhere', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-module-'))
  const read = () => filesOf(module({ source: folder }), {})
  try {
    mkdirSync(join(folder, 'sub'))
    mkdirSync(join(folder, '.terraform'))
    for (const path of [
      'main.tf',
      'sub/more.tf',
      '.terraform.lock.hcl',
      '.terraform/x',
      'terraform.tfstate',
      'a.tfstate.backup',
    ])
      writeFileSync(join(folder, path), path)
    assert.deepEqual((await read()).map(({ path }) => path).toSorted(), [
      '/module/.terraform.lock.hcl',
      '/module/main.tf',
      '/module/sub/more.tf',
    ])
    symlinkSync('/etc/passwd', join(folder, 'link.tf'))
    await assert.rejects(read(), /link\.tf is not a file/)
    rmSync(join(folder, 'link.tf'))
    writeFileSync(join(folder, 'large.tf'), 'x'.repeat(1_048_577))
    await assert.rejects(read(), /more than/)
  } finally {
    rmSync(folder, { recursive: true })
  }
  await assert.rejects(read(), /cannot be read/)
})
