/**
 * The guides are true: their examples run as they are written, in any order, and every operation and file that a guide
 * names is there.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { operations } from '../src/resources/index.ts'
import { examplesOf, guides, guidesToPaste, paste, pasteGuides } from './support/guides.ts'
import { onlyAtNight } from './support/nightly.ts'
import { prepareSlipway, type Slipway } from './support/slipway/slipway.ts'

const missing = ['curl', 'git', 'openssl'].find((program) => spawnSync(program, ['--version']).error !== undefined)

const everyDay = [
  'volumes',
  'databases',
  'database-backups',
  'health-checks',
  'cron-jobs',
  'domains',
  'private-sources',
  'ci',
  'router',
  'deploy-on-push',
  'previews',
  'scaling',
  'backup',
]
/** Those that leave the server as it was. */
const shared = guidesToPaste.filter((name) => name !== 'backup.md')
const begin = ['api', 'disk', 'first-deploy', 'identity', 'plan-and-rollback', 'webhooks']

describe('the examples, on a clean data directory and other ports than usual', {
  skip: missing === undefined ? false : `${missing} is not installed`,
}, () => {
  let slipway: Slipway
  let env: Record<string, string>

  before(async () => {
    // As a new user has it: without settings except the two ports and the folder.
    const usual = { SLIPWAY_ADMIN_TOKEN: '', SLIPWAY_OUTBOUND_ALLOW: '', SLIPWAY_RATE_LIMIT: '', SLIPWAY_SAMPLE: 'on' }
    slipway = await prepareSlipway({ fake: true, env: usual })
    await slipway.start()
    env = { SLIPWAY_DATA_DIR: slipway.dataDir, HOME: '/nonexistent' }
  })
  after(() => slipway.remove())

  test('there is a guide to paste for each everyday task', () => {
    assert.deepEqual(guidesToPaste.toSorted(), [...begin, ...everyDay].map((name) => `${name}.md`).toSorted())
  })

  test('all guides can be pasted one after another, from the first to the last', async () => {
    const text = await pasteGuides(shared, env)
    assert.match(text, /guide first-deploy\.md\n[\s\S]*?\nRUNNING\nhttp:\/\/web-test/)
    assert.match(
      text,
      /guide plan-and-rollback\.md\n[\s\S]*?\n(BUILD|ROLL_OUT)\n[\s\S]*?\n\/memory\nfalse\n[\s\S]*?\nOUT_OF_DATE\n/,
    )
    assert.match(text, /guide ci\.md\n[\s\S]*?\nDeployed the head of the branch\.\n/)
    assert.match(text, /guide cron-jobs\.md\n[\s\S]*?\nSUCCEEDED\n/)
    assert.match(text, /guide router\.md\n[\s\S]*?\n401\n200\n/)
    assert.match(text, /guide domains\.md\n[\s\S]*?\n200\n/)
  })

  test('and again, from the last to the first', { skip: onlyAtNight }, async () => {
    await pasteGuides(shared.toReversed(), env)
  })

  test('nothing of them is left', async () => {
    const left = await paste(
      [
        '. docs/guides/prelude.sh\n',
        'organization=$(api $url/organization | field "results[0].id")\n',
        'api $url/organization/$organization/project | field "results.map(each => each.name).join()"\n',
        'api $url/organization/$organization/apiToken | field "results.map(each => each.name).join()"\n',
        'api $url/organization/$organization/gitToken | field "results.length"\n',
      ],
      env,
    )
    assert.match(left.text, /example 3\nSample\nexample 4\nadmin token\nexample 5\n0\n$/)
  })

  test('an example that fails is noticed, with the sentence of the API', async () => {
    const wrong = 'api $url/organization/$organization/nothing | field id\n'
    const { code, text } = await paste([...examplesOf('identity.md').slice(0, 1), wrong], env)
    assert.notEqual(code, 0)
    assert.match(text, /example 2\n[\s\S]*Not found\./)
  })
})

test('the guide to backups destroys the data directory, and all is there again', {
  skip: missing === undefined ? false : `${missing} is not installed`,
}, async (t) => {
  const usual = { SLIPWAY_ADMIN_TOKEN: '', SLIPWAY_SAMPLE: 'on' }
  const slipway = await prepareSlipway({ fake: true, env: usual })
  const { dataDir } = slipway
  const backups = new URL('../../backups', import.meta.url).pathname
  const hadBackups = existsSync(backups)
  t.after(async () => {
    await slipway.remove()
    rmSync(`${dataDir}.lost`, { recursive: true, force: true })
    if (!hadBackups) rmSync(backups, { recursive: true, force: true })
  })
  await slipway.start()
  const env = { SLIPWAY_DATA_DIR: dataDir, SLIPWAY_ROUTER_PORT: String(slipway.routerPort), HOME: '/nonexistent' }
  const examples = examplesOf('backup.md')
  const { code, text } = await paste(examples.slice(0, -1), env)
  assert.equal(code, 0, text)
  assert.match(text, /is whole: \d+ rows of \d+ tables\.\n[\s\S]*\nRestored +the backup of /)
  assert.match(text, /^By itself +1 service: .*: Sample\/demo\/hello$/m)
  await slipway.start()
  const after = await paste(examples.slice(-1), env)
  assert.equal(after.text, 'example 1\n1\n')
})

test('every operation that a guide names exists', () => {
  const pages = ['/healthz', '/readyz', '/metrics'].map((path) => `GET ${path}`)
  const served = operations.map(({ method, path }) => `${method} ${path.replaceAll(/\{\w+\}/g, '{}')}`)
  const known = new Set([...pages, ...served])
  const strange = guides.flatMap(({ name, text }) =>
    [...text.matchAll(/`(GET|POST|PUT|DELETE) (\/[\w/{}]*)`/g)]
      .map(([, method, path]) => `${method} ${path!.replaceAll(/\{\w+\}/g, '{}')}`)
      .filter((named) => !known.has(named))
      .map((named) => `${name}: ${named}`),
  )
  assert.deepEqual(strange, [])
})

test('every file that a guide links to exists', () => {
  const folder = new URL('../../docs/guides/', import.meta.url)
  const strange = guides.flatMap(({ name, text }) =>
    [...text.matchAll(/\]\((?!https?:)([^)#]+)/g)]
      .filter(([, link]) => !existsSync(new URL(link!, folder)))
      .map(([, link]) => `${name}: ${link}`),
  )
  assert.deepEqual(strange, [])
})
