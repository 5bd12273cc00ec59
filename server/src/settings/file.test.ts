import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadSettingsFile, parseSettingsFile, SettingsError } from './file.ts'
import { parseSettings } from './settings.ts'

const problemsOf = (run: () => unknown): readonly string[] => {
  try {
    run()
    return []
  } catch (error) {
    assert.ok(error instanceof SettingsError)
    return error.problems
  }
}

test('a file gives settings, and the environment wins over it', () => {
  const text = [
    '\uFEFF# the machine in the cellar',
    '',
    'SLIPWAY_PORT=9000\r',
    '  SLIPWAY_ROUTER_PORT = "9001"',
    "SLIPWAY_OUTBOUND_ALLOW='git.test:8080, 10.0.0.0/8'",
    'SLIPWAY_LOG_LEVEL=',
    'DATABASE_URL=postgresql://u:p=w@127.0.0.1:5433/x?a=b',
    'DOCKER_TLS_VERIFY=1',
  ].join('\n')
  const { settings: file, problems } = parseSettingsFile(text)
  assert.deepEqual(problems, [])
  const { settings } = parseSettings({ SLIPWAY_PORT: '7000' }, file)
  assert.equal(settings.port, 7000)
  assert.equal(settings.routerPort, 9001)
  assert.deepEqual(settings.outboundAllow, ['git.test:8080', '10.0.0.0/8'])
  assert.equal(settings.logLevel, 'info')
  assert.equal(settings.databasePort, 5433)
  assert.equal(parseSettings({ SLIPWAY_PORT: '' }, file).settings.port, 8080)
})

const wrongLines: [text: string, problem: RegExp][] = [
  ['\nexport SLIPWAY_PORT=1', /^slipway\.env, line 2: must be NAME=value/],
  ['SLIPWAY_PORT', /^slipway\.env, line 1: must be NAME=value/],
  ['SLIPWAY_PORT="1', /^slipway\.env, line 1: the value of SLIPWAY_PORT has a quote/],
  ['SLIPWAY_PORT=1\nSLIPWAY_PORT=1', /^slipway\.env, line 2: SLIPWAY_PORT was set before, in line 1\.$/],
  ['SLIPWAY_ADMIN_TOKEN=hush\u0000', /^slipway\.env, line 1: the value of SLIPWAY_ADMIN_TOKEN has a control/],
]
for (const [text, problem] of wrongLines)
  test(`${JSON.stringify(text)} is refused with its line`, () => {
    const { problems } = parseSettingsFile(text)
    assert.equal(problems.length, 1)
    assert.match(problems[0]!, problem)
    assert.doesNotMatch(problems[0]!, /hush/)
  })

const wrongSettings: [text: string, problem: string][] = [
  ['#\nSLIPWAY_PROT=1', 'slipway.env, line 2: SLIPWAY_PROT is not a setting; did you mean SLIPWAY_PORT?'],
  ['PATH=/bin', 'slipway.env, line 1: PATH is not a setting.'],
  ['SLIPWAY_PORT=0', 'slipway.env, line 1: SLIPWAY_PORT must be a whole number between 1 and 65535.'],
  ['SLIPWAY_DATA_DIR=/x', 'slipway.env, line 1: SLIPWAY_DATA_DIR says where this file is: set it in the environment.'],
]
for (const [text, problem] of wrongSettings)
  test(`${JSON.stringify(text)} is refused as a setting`, () => {
    const { settings } = parseSettingsFile(text)
    assert.deepEqual(
      problemsOf(() => parseSettings({}, settings)),
      [problem],
    )
  })

test('a file that others may change is refused, and one with a secret that others may read', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-env-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'slipway.env')
  const problemsWith = (text: string, mode: number) => {
    writeFileSync(path, text)
    chmodSync(path, mode)
    return problemsOf(() => loadSettingsFile(folder)).join()
  }
  assert.deepEqual(
    problemsOf(() => loadSettingsFile(folder)),
    [],
  )
  assert.equal(problemsWith('SLIPWAY_PORT=1', 0o644), '')
  assert.match(problemsWith('SLIPWAY_PORT=1', 0o666), /^Other users may write to .*: chmod 600 it\.$/)
  const secrets = [
    'SLIPWAY_ADMIN_TOKEN=hush',
    'SLIPWAY_OIDC_CLIENT_SECRET=hush',
    'DATABASE_URL=postgresql://u:hush@h/d',
  ]
  for (const secret of secrets) {
    assert.match(problemsWith(secret, 0o640), /has a secret that other users may read: chmod 600 it\.$/)
    assert.equal(problemsWith(secret, 0o600), '')
  }
  assert.equal(problemsWith('DATABASE_URL=postgresql://u@h/d', 0o644), '')
})
