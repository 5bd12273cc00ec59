import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  classify,
  formatAddress,
  parseAddress,
  parseAllowList,
  parseUrl,
  refuseAddress,
  refusePort,
  targetOf,
} from './address-policy.ts'

/** Why the policy refuses a URL whose host is an address; null when it may be called. */
const verdict = (url: string, allow: string[] = []): string | null => {
  const parsed = parseUrl(url)
  if (typeof parsed === 'string') return parsed
  const target = targetOf(parsed)
  const list = parseAllowList(allow)
  const address = parseAddress(target.host)
  if (address === undefined) return refusePort(target, list)
  return refuseAddress(address, target, list) ?? refusePort(target, list, address)
}

const refused: [string, RegExp][] = [
  ['http://127.0.0.1/', /loopback/],
  ['http://127.1/', /loopback/],
  ['http://2130706433/', /loopback/],
  ['http://0x7f000001/', /loopback/],
  ['http://0x7f.0.0.1/', /loopback/],
  ['http://0177.0.0.1/', /loopback/],
  ['http://127.0.0.1./', /loopback/],
  ['http://①②⑦.0.0.1/', /loopback/],
  ['http://[::1]/', /loopback/],
  ['http://[0:0:0:0:0:0:0:1]/', /loopback/],
  ['http://[::ffff:127.0.0.1]/', /loopback/],
  ['http://[::ffff:7f00:1]/', /loopback/],
  ['http://[64:ff9b::7f00:1]/', /loopback/],
  ['http://[2002:7f00:1::]/', /loopback/],
  ['http://10.0.0.1/', /private/],
  ['http://172.16.0.1/', /private/],
  ['http://172.31.255.255/', /private/],
  ['http://192.168.1.1/', /private/],
  ['http://100.64.0.1/', /private/],
  ['http://100.127.255.255/', /private/],
  ['http://198.18.0.1/', /private/],
  ['http://[fd00::1]/', /private/],
  ['http://[fc00::1]/', /private/],
  ['http://[::ffff:10.0.0.1]/', /private/],
  ['http://[64:ff9b::a00:1]/', /private/],
  ['http://169.254.169.254/', /link-local/],
  ['http://[::ffff:169.254.169.254]/', /link-local/],
  ['http://[fe80::1]/', /link-local/],
  ['http://[febf::1]/', /link-local/],
  ['http://[fd00:ec2::254]/', /metadata/],
  ['http://100.100.100.200/', /metadata/],
  ['http://168.63.129.16/', /metadata/],
  ['http://0.0.0.0/', /unspecified/],
  ['http://0/', /unspecified/],
  ['http://0.1.2.3/', /unspecified/],
  ['http://[::]/', /unspecified/],
  ['http://224.0.0.1/', /multicast/],
  ['http://[ff02::1]/', /multicast/],
  ['http://255.255.255.255/', /reserved/],
  ['http://240.0.0.1/', /reserved/],
  ['http://[::7f00:1]/', /reserved/],
  ['http://[2001:db8::1]/', /reserved/],
  ['http://8.8.8.8:22/', /port 22/],
  ['http://8.8.8.8:25/', /port 25/],
  ['http://git.test:2375/', /port 2375/],
  ['http://git.test:2376/', /port 2376/],
  ['https://git.test:5432/', /port 5432/],
  ['https://[2606:4700::1]:6379/', /port 6379/],
  ['http://8.8.8.8:0/', /port 0/],
  ['http://hook.test./', /dot/],
  ['http://user@8.8.8.8/', /user name/],
  ['http://user:word@8.8.8.8/', /user name/],
  ['http://:word@8.8.8.8/', /user name/],
  ['http://@8.8.8.8/', /user name/],
  ['ftp://8.8.8.8/', /http:\/\//],
  ['file:///etc/passwd', /http:\/\//],
  ['gopher://8.8.8.8/', /http:\/\//],
  ['hook.test/path', /absolute/],
  ['/path', /absolute/],
  ['', /absolute/],
  ['http://', /absolute/],
  ['http://1.2.3.4.5/', /absolute/],
  ['http://256.1.1.1/', /absolute/],
  ['http://[::1', /absolute/],
  ['http://exa mple/', /absolute/],
  ['http://8.8.8.8:65536/', /absolute/],
  [`http://8.8.8.8/${'x'.repeat(2048)}`, /longer/],
]

const accepted = [
  'http://8.8.8.8/',
  'https://hook.test/path?query=1@2',
  'https://hook.test/a@b',
  'http://bücher.test/',
  'http://172.15.255.255/',
  'http://172.32.0.1/',
  'http://100.63.255.255/',
  'http://100.128.0.1/',
  'http://169.253.1.1/',
  'http://11.0.0.1/',
  'http://126.255.255.255/',
  'http://128.0.0.1/',
  'http://[2606:4700::1]/',
  'http://[64:ff9b::808:808]/',
  'http://[::ffff:8.8.8.8]/',
  'http://8.8.8.8:8080/',
]

test('without a setting only public addresses may be called', () => {
  for (const [url, why] of refused) assert.match(verdict(url) ?? 'accepted', why, url)
  for (const url of accepted) assert.equal(verdict(url), null, url)
})

const widened: [string, string[], boolean][] = [
  ['http://127.0.0.1/', ['loopback'], true],
  ['http://[::1]/', ['loopback'], true],
  ['http://127.0.0.1/', ['private'], false],
  ['http://10.1.2.3/', ['private'], true],
  ['http://[fd12::1]/', ['private'], true],
  ['http://10.1.2.3/', ['loopback'], false],
  ['http://10.1.2.3/', ['10.1.0.0/16'], true],
  ['http://10.2.2.3/', ['10.1.0.0/16'], false],
  ['http://[fd12::1]/', ['fd12::/32'], true],
  ['http://10.1.2.3/', ['10.1.2.3'], true],
  ['http://10.1.2.3:81/', ['10.1.2.3:80'], false],
  ['http://10.1.2.3/', ['10.1.2.3:80'], true],
  ['https://10.1.2.3/', ['10.1.2.3:443'], true],
  ['http://[fd12:0::1]/', ['fd12::1'], true],
  ['http://[fd12::1]:81/', ['[fd12::1]:81'], true],
  ['http://0x0a010203/', ['10.1.2.3'], true],
  ['http://169.254.169.254/', ['private', 'loopback'], false],
  ['http://169.254.169.254/', ['169.254.0.0/16'], false],
  ['http://169.254.169.254/', ['0.0.0.0/0'], false],
  ['http://169.254.169.254/', ['169.254.169.254'], true],
  ['http://169.254.169.254/', ['169.254.169.254/32'], true],
  ['http://[fd00:ec2::254]/', ['private'], false],
  ['http://100.100.100.200/', ['private', '100.64.0.0/10'], false],
  ['http://[fe80::1]/', ['fe80::1'], true],
  ['http://0.0.0.0/', ['loopback', 'private'], false],
  ['http://git.test:22/', ['git.test:22'], true],
  ['http://GIT.test:22/', ['git.TEST:22'], true],
  ['http://git.test:22/', ['git.test'], false],
  ['http://10.1.2.3:5432/', ['private'], false],
  ['http://10.1.2.3:5432/', ['10.1.2.3:5432'], true],
  ['http://bücher.test:22/', ['xn--bcher-kva.test:22'], true],
]

test('the setting widens exactly what it lists', () => {
  for (const [url, allow, passes] of widened) assert.equal(verdict(url, allow) === null, passes, `${url} with ${allow}`)
})

test('a listed name may lead to private and loopback addresses, never to a guarded one', () => {
  const allow = parseAllowList(['inner.test'])
  const target = { host: 'inner.test', port: 443 }
  const at = (address: string) => refuseAddress(parseAddress(address)!, target, allow)
  assert.equal(at('10.0.0.1'), null)
  assert.equal(at('127.0.0.1'), null)
  assert.match(at('169.254.169.254')!, /SLIPWAY_OUTBOUND_ALLOW/)
})

test('a part of this server is refused though its network is allowed', () => {
  const target = { host: 'db.test', port: 8123 }
  const own = parseAddress('10.0.0.9')!
  assert.match(refuseAddress(own, target, parseAllowList(['private', 'db.test']), 'own')!, /part of this server/)
  assert.equal(refuseAddress(own, target, parseAllowList(['private', '10.0.0.9:8123']), 'own'), null)
})

test('an entry that cannot be read stops the start with its text', () => {
  for (const entry of ['10.0.0.0/33', 'fd00::/129', '10.0.0.0/', 'a b', 'http://x', 'host:0', 'host:99999', 'x/8'])
    assert.throws(() => parseAllowList([entry]), /SLIPWAY_OUTBOUND_ALLOW/, entry)
  assert.equal(parseAllowList(['', ' private ']).classes.size, 1)
})

test('every address has one spelling, and spelling keeps its class', () => {
  const octets = fc.array(fc.nat(255), { minLength: 4, maxLength: 4 }).map((parts) => parts.join('.'))
  fc.assert(
    fc.property(fc.oneof(octets, fc.ipV6()), (text) => {
      const address = parseAddress(text)!
      assert.deepEqual(parseAddress(formatAddress(address)), address)
      assert.equal(classify(parseAddress(formatAddress(address))!).kind, classify(address).kind)
    }),
  )
})

test('an IPv4 address inside an IPv6 spelling has the class of the IPv4 address', () => {
  fc.assert(
    fc.property(fc.ipV4(), (text) => {
      const { kind } = classify(parseAddress(text)!)
      for (const wrapped of [`::ffff:${text}`, `64:ff9b::${text}`])
        assert.equal(classify(parseAddress(wrapped)!).kind, kind)
    }),
  )
})
