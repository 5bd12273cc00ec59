/** The guides are true: the examples of docs/guides/api.md and of plan-and-rollback.md run as they stand, and every operation that a guide names is there. */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { test } from 'node:test'
import { operations } from '../src/resources/index.ts'
import { startApi } from './support/api.ts'

const folder = new URL('../../docs/guides/', import.meta.url)
const guides = readdirSync(folder)
  .filter((name) => name.endsWith('.md'))
  .map((name) => ({ name, text: readFileSync(new URL(name, folder), 'utf8') }))

const examplesOf = (name: string): string[] => {
  const { text } = guides.find((guide) => guide.name === name)!
  return [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, example]) => example!)
}

const needs = (program: string): string | false =>
  spawnSync(program, ['--version']).error === undefined ? false : `${program} is not installed`

interface Run {
  code: number | null
  text: string
}

/** All examples in one shell, one after the other, which ends at the first that fails and says at which. */
const runExamples = (examples: readonly string[], env: Record<string, string>): Promise<Run> =>
  new Promise((resolve) => {
    const script = examples.map((example, at) => `echo "example ${at + 1}"\n${example}`).join('\n')
    const path = `${dirname(process.execPath)}:${process.env.PATH ?? ''}`
    const child = spawn('bash', ['-euo', 'pipefail', '-c', script], {
      env: { ...env, PATH: path },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let text = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (more: string) => {
        text += more
      })
    child.on('close', (code) => resolve({ code, text }))
  })

test('every example of the guide to the API succeeds, in the order in which they stand', {
  skip: needs('curl'),
}, async () => {
  const api = await startApi()
  const examples = examplesOf('api.md')
  assert.ok(examples.length >= 10)
  const { code, text } = await runExamples(examples, { SLIPWAY_URL: api.url, SLIPWAY_TOKEN: api.token })
  assert.equal(code, 0, text)
  assert.match(text, /\nRUNNING\n/)
  assert.match(text, new RegExp(`example ${examples.length}\\n(Once\\n){2}$`))
  assert.doesNotMatch(text, /undefined|\bcurl:/)
})

test('every example of the guide to plans and rollbacks succeeds, in the order in which they stand', {
  skip: needs('curl'),
}, async () => {
  const api = await startApi()
  const examples = examplesOf('plan-and-rollback.md')
  const { code, text } = await runExamples(examples, { SLIPWAY_URL: api.url, SLIPWAY_TOKEN: api.token })
  assert.equal(code, 0, text)
  assert.match(text, /\nBUILD\n[\s\S]*\n\/memory\nfalse\n[\s\S]*\nOUT_OF_DATE\n$/)
  assert.doesNotMatch(text, /undefined|\bcurl:/)
})

test('an example that fails is noticed', { skip: needs('curl') }, async () => {
  const api = await startApi({ idle: true })
  const [first] = examplesOf('api.md')
  const wrong = 'api $url/organization/$organization/nothing\n'
  const { code, text } = await runExamples([first!, wrong], { SLIPWAY_URL: api.url, SLIPWAY_TOKEN: api.token })
  assert.equal(code, 22, text)
  assert.match(text, /example 2\n[\s\S]*"status":404/)
})

test('every operation that a guide names is there', () => {
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
