import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkPolicy } from '../../router/policy.ts'
import { ingressDefaults, ingressSettingsIn, policyOf, policyRefusal, wrongSetting } from './ingress-settings.ts'

const sha = '{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ='
const net = (name: string): string => `network.ingress.${name}`

test('a service with nothing but defaults has no settings, and the usual policy', () => {
  assert.equal(ingressSettingsIn({}), undefined)
  assert.equal(ingressSettingsIn({ ...ingressDefaults, 'network.ingress.proxy_buffering': 'off' }), undefined)
  assert.equal(policyOf(undefined, {}), undefined)
})

test('every setting has its part in a policy that the router accepts', () => {
  const settings = ingressSettingsIn({
    [net('proxy_body_size_mb')]: 0,
    [net('enable_cors')]: true,
    [net('cors_allow_origin')]: 'https://a.example, https://*.b.example',
    [net('proxy_read_timeout_seconds')]: 5,
    [net('whitelist_source_range')]: '10.0.0.0/8, 2001:db8::/32',
    [net('denylist_source_range')]: '10.1.1.1',
    [net('basic_auth_env_var')]: 'LOGINS',
    [net('extra_headers')]: '{"X-A":"b"}',
    'network.gateway_api.retry.num_retries': 2,
  })
  const policy = policyOf(settings, { LOGINS: `ada:${sha},bob:${sha}` })!
  assert.deepEqual(policy, {
    bodyBytes: 0,
    readMs: 5000,
    allow: ['10.0.0.0/8', '2001:db8::/32'],
    deny: ['10.1.1.1'],
    users: [`ada:${sha}`, `bob:${sha}`],
    cors: {
      origins: ['https://a.example', 'https://*.b.example'],
      methods: ingressDefaults[net('cors_allow_methods')],
      headers: ingressDefaults[net('cors_allow_headers')],
    },
    headers: { 'X-A': 'b' },
    retry: { times: 2, on: [], statuses: [503] },
  })
  assert.equal(checkPolicy(policy), null)
  for (const [key, usual] of Object.entries(ingressDefaults)) {
    const other = typeof usual === 'boolean' ? !usual : typeof usual === 'string' ? 'x' : 7
    assert.deepEqual(ingressSettingsIn({ [key]: other }), { [key]: other })
  }
})

test('lists on several lines are taken as on one', () => {
  const settings = {
    [net('enable_cors')]: true,
    [net('cors_allow_origin')]: 'https://a.example,\n  https://b.example\n',
    [net('cors_allow_methods')]: '\n GET,\r\n\tPUT ,DELETE\n',
    [net('cors_allow_headers')]: 'X-A,\nX-B',
    [net('denylist_source_range')]: '10.1.1.1,\n10.1.1.2',
    'network.gateway_api.retry.num_retries': 1,
    'network.gateway_api.retry.retry_on': '5xx,\n reset',
  }
  assert.equal(wrongSetting(settings), null)
  const policy = policyOf(settings, {})!
  assert.equal(checkPolicy(policy), null)
  assert.deepEqual(policy.cors, {
    origins: ['https://a.example', 'https://b.example'],
    methods: 'GET, PUT ,DELETE',
    headers: 'X-A, X-B',
  })
  assert.deepEqual(
    [policy.deny, policy.retry?.on],
    [
      ['10.1.1.1', '10.1.1.2'],
      ['5xx', 'reset'],
    ],
  )
})

test('a variable that is missing or has no hashed passwords fails a deployment, and admits no user', () => {
  const ingress = { [net('basic_auth_env_var')]: 'LOGINS' }
  const refusal = (env: Record<string, string>) => policyRefusal(ingress, env)
  assert.match(refusal({})!, /^The service has no variable LOGINS, /)
  for (const text of [
    '',
    ' ,',
    'ada',
    'ada:secret',
    `:${sha}`,
    `ada:$2y$14$${'a'.repeat(53)}`,
    'ada:{PLAIN}x',
    `ok:${sha},ada:x`,
  ]) {
    assert.match(refusal({ LOGINS: text })!, /^The variable LOGINS, /, text)
    assert.ok(!refusal({ LOGINS: text })!.includes('secret'))
    assert.deepEqual(policyOf(ingress, { LOGINS: text })!.users, [])
  }
  assert.equal(refusal({ LOGINS: `ada:${sha}\r\nbob:${sha}\n` }), null)
  assert.deepEqual(policyOf(ingress, {})!.users, [])
})

test('values that the router cannot act on are reported, and never remove a list', () => {
  const wrong: [string, string][] = [
    ['whitelist_source_range', '10.0.0.0/33'],
    ['whitelist_source_range', '10.0.0.0/8,'],
    ['whitelist_source_range', 'office'],
    ['denylist_source_range', '10.0.0.0/8;10.1.0.0/16'],
    ['denylist_source_range', '10.0.0.01'],
    ['denylist_source_range', 'fe80::1%eth0'],
    ['basic_auth_env_var', 'A B'],
    ['cors_allow_origin', 'example.com'],
    ['cors_allow_methods', 'GET\r\nX: y'],
    ['cors_allow_headers', 'X-A,'],
    ['extra_headers', '[]'],
    ['extra_headers', '{"X":"a\\r\\nSet-Cookie: b"}'],
    ['extra_headers', '{"Content-Length":"0"}'],
    ['extra_headers', '{"X A":"b"}'],
    ['extra_headers', '{"Proxy-Connection":"close"}'],
    ['extra_headers', '{"HTTP2-Settings":"x"}'],
  ]
  for (const [name, value] of wrong) assert.equal(wrongSetting({ [net(name)]: value })?.key, net(name), value)
  for (const [name, value] of [
    ['retry.retry_on', '5xx,sometimes'],
    ['retry.http_status_codes', '503,700'],
  ] as const)
    assert.equal(wrongSetting({ [`network.gateway_api.${name}`]: value })?.key, `network.gateway_api.${name}`)
  assert.equal(wrongSetting(ingressDefaults), null)
  const ingress = { [net('whitelist_source_range')]: 'office' }
  assert.match(policyRefusal(ingress, {})!, /^The advanced setting network\.ingress\.whitelist_source_range must be /)
  assert.notEqual(checkPolicy(policyOf(ingress, {})), null)
})
