import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import type { Json } from '../../../test/support/api.ts'
import { clusterCertificate, clusterKey, kubeconfigOf } from '../../../test/support/peers/kubernetes.ts'
import { importsOf, readSources } from '../../../test/support/source-code.ts'
import { hostileKey, lockedKey } from '../../../test/support/tls/hostile-key.ts'
import { KubeconfigRefused, longestKubeconfig, parseKubeconfig } from './kubeconfig.ts'

const base64 = (text: string): string => Buffer.from(text).toString('base64')

const said = (text: string): Promise<string> =>
  parseKubeconfig(text).then(
    () => 'taken',
    (error: unknown) => {
      assert.ok(error instanceof KubeconfigRefused, inspect(error))
      return error.message
    },
  )

const yaml = `# as kubectl prints it
apiVersion: v1
kind: Config
clusters:
- name: other
  cluster: {server: "https://other.example"}
- cluster:
    certificate-authority-data: ${base64(clusterCertificate)}
    server: https://kubernetes.example/k8s/clusters/c-1/
    tls-server-name: kubernetes.test
  name: one
contexts:
- context: &here
    cluster: one
    namespace: default
    user: me
  name: mine
current-context: mine
preferences: {}
users:
- name: me
  user:
    token: t0ken
    client-certificate-data: ${base64(clusterCertificate)}
    client-key-data: ${base64(clusterKey)}
- name: not me
  user:
    exec: {command: evil}
`

test('a kubeconfig is read as kubectl writes it: its context, with everything inline', async () => {
  const { key, token, ...rest } = await parseKubeconfig(yaml)
  assert.deepEqual(rest, {
    host: 'kubernetes.example',
    port: 443,
    path: '/k8s/clusters/c-1',
    serverName: 'kubernetes.test',
    ca: clusterCertificate,
    cert: clusterCertificate,
  })
  assert.deepEqual([key?.reveal(), token?.reveal()], [clusterKey, 't0ken'])
  const json = await parseKubeconfig(JSON.stringify(kubeconfigOf(6443, 'abc')))
  assert.deepEqual([json.host, json.port, json.path, json.key], ['127.0.0.1', 6443, '', undefined])
  assert.ok(!inspect(json, { depth: 9 }).includes('abc'))
})

const cluster = (fields: Json): string => JSON.stringify(kubeconfigOf(6443, 'abc', { cluster: fields }))
const user = (fields: Json): string => JSON.stringify(kubeconfigOf(6443, 'abc', { user: fields }))
const whole = (fields: Json): string => JSON.stringify({ ...kubeconfigOf(6443, 'abc'), ...fields })
const key = base64(clusterKey)
const cert = base64(clusterCertificate)

const refused: [string, string, RegExp][] = [
  ['a file of an authority', cluster({ 'certificate-authority': '/etc/passwd' }), /names a file/],
  ['a file of a token', user({ tokenFile: '/etc/passwd' }), /names a file/],
  ['a file of a certificate', user({ 'client-certificate': 'x.pem' }), /names a file/],
  ['a file of a key', user({ 'client-key': 'x.pem' }), /names a file/],
  ['a program', user({ exec: { command: 'aws', args: ['eks'] } }), /starts a program/],
  ['a plugin', user({ 'auth-provider': { name: 'gcp' } }), /plugin/],
  [
    'a key that costs seconds',
    user({ 'client-certificate-data': cert, 'client-key-data': base64(hostileKey(257, 257, 700)) }),
    /is not used: its/,
  ],
  [
    'a key behind a password',
    user({ 'client-certificate-data': cert, 'client-key-data': base64(lockedKey()) }),
    /without a passphrase/,
  ],
  ['a password', user({ username: 'admin', password: 'x' }), /password/],
  ['impersonation of a user', user({ as: 'system:admin' }), /impersonation/],
  ['impersonation of groups', user({ 'as-groups': ['system:masters'] }), /impersonation/],
  ['no check of the certificate', cluster({ 'insecure-skip-tls-verify': true }), /insecure-skip-tls-verify/],
  ['a proxy', cluster({ 'proxy-url': 'http://10.0.0.1' }), /proxy/],
  ['plain HTTP', cluster({ server: 'http://kubernetes.example' }), /https/],
  ['another scheme', cluster({ server: 'file:///etc/passwd' }), /https/],
  ['no address', cluster({ server: '' }), /https/],
  ['a login in the address', cluster({ server: 'https://me:secret@kubernetes.example' }), /nothing but a host/],
  ['a query in the address', cluster({ server: 'https://kubernetes.example/?a=b' }), /nothing but a host/],
  ['an address as name', cluster({ 'tls-server-name': '10.0.0.1' }), /tls-server-name/],
  ['lines in a name', cluster({ 'tls-server-name': 'a\r\nb' }), /tls-server-name/],
  ['no base64', cluster({ 'certificate-authority-data': '%%%' }), /base64/],
  ['no certificate', cluster({ 'certificate-authority-data': base64('x') }), /no certificate/],
  ['a key without a certificate', user({ 'client-key-data': key }), /both/],
  ['a certificate without a key', user({ 'client-certificate-data': cert }), /both/],
  ['what is no key', user({ 'client-certificate-data': cert, 'client-key-data': base64('x') }), /private key/],
  ['nobody', user({ token: '' }), /neither a token/],
  ['a header in a token', user({ token: 'a\r\nx: y' }), /token/],
  ['no context', whole({ 'current-context': 'other' }), /no entry in `contexts`/],
  ['an ambiguous context', whole({ 'current-context': '', contexts: [] }), /current-context/],
  ['two of a name', whole({ users: [...kubeconfigOf(1, 'a').users, ...kubeconfigOf(1, 'b').users] }), /two entries/],
  ['texts as lists', whole({ clusters: 'one' }), /no entry in `clusters`/],
  ['a list', '- a', /not a kubeconfig/],
  ['nothing', '', /not a kubeconfig/],
  ['no YAML', '{', /not valid YAML/],
  ['two documents', `${yaml}---\na: b\n`, /not valid YAML/],
  ['a field twice', `${yaml}kind: Config\n`, /twice/],
  ['an alias', `${yaml}x: *here\n`, /aliases/],
  ['a merge', `${yaml}x: {<<: *here}\n`, /aliases/],
  ['a tag', `${yaml}x: !!binary aaaa\n`, /tags/],
  ['a name that is a list', `${yaml}? [a]\n: b\n`, /name that is not a text/],
  ['depth', `a: ${'['.repeat(40)}${']'.repeat(40)}`, /nested too deeply/],
  ['laughs', `a: &a [x]\n${Array.from({ length: 20 }, (_, n) => `b${n}: &b${n} [*a, *a]`).join('\n')}`, /aliases/],
  ['length', `# ${'x'.repeat(longestKubeconfig)}`, /longer than/],
  ...['[', '- ', '{a: ', '"', '? ', '&a ', '\n'].map((mark): [string, string, RegExp] => [
    `many of ${JSON.stringify(mark)}`,
    mark.repeat(longestKubeconfig / 5),
    /too many entries/,
  ]),
]

test('what a kubeconfig must not do is refused with the reason, and with none of its values', async () => {
  for (const [what, text, expected] of refused) assert.match(await said(text), expected, what)
  const told = await Promise.all(refused.map(([, text]) => said(text)))
  assert.ok(!/passwd|secret|abc|x\.pem|10\.0\.0/.test(told.join('\n')))
})

test('a refused field of another context, and one that is empty or off, does not matter', async () => {
  assert.equal(await said(yaml), 'taken')
  assert.equal(await said(cluster({ 'insecure-skip-tls-verify': false, 'certificate-authority': '' })), 'taken')
  const { 'current-context': _, ...only } = kubeconfigOf(6443, 'abc')
  assert.equal(await said(JSON.stringify(only)), 'taken')
})

test('a key that belongs to another certificate is refused', async () => {
  const { generateKeyPairSync } = await import('node:crypto')
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const other = base64(String(privateKey.export({ type: 'pkcs8', format: 'pem' })))
  assert.match(await said(user({ 'client-certificate-data': cert, 'client-key-data': other })), /does not belong/)
})

test('the package yaml is loaded with the first kubeconfig, and by nothing else', () => {
  const root = new URL('../../../../', import.meta.url).pathname
  const loading = readSources(root, ['server/src']).flatMap(({ path, text }) =>
    path.endsWith('.test.ts')
      ? []
      : importsOf(text).flatMap((each) => (each.from === 'yaml' ? [{ path, ...each }] : [])),
  )
  const [type, first, ...rest] = loading
  assert.deepEqual([type?.isTypeOnly, rest], [true, []])
  assert.equal(first?.path, 'server/src/lib/kubernetes/kubeconfig.ts')
})
