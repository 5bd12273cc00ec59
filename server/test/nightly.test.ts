/** The list of what only each night runs (docs/guides/develop.md) is the truth, and every test file says what it needs. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, matchesGlob } from 'node:path'
import { test } from 'node:test'
import { allTestFiles, isNightly, laneOf, needsOf } from '../../bin/test-plan.ts'

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const files = allTestFiles()
const clusterFiles = readdirSync(new URL('kubernetes/', import.meta.url))
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => `server/test/kubernetes/${name}`)

const section = /\n## What runs each night\n([\s\S]*?)\n## /.exec(read('docs/guides/develop.md'))?.[1] ?? ''
/** A row names a file, what only each night runs of it, and what every run has instead. */
const rows = [...section.matchAll(/^\| `([^`]+)` \| (.+) \| (.+) \|$/gm)].map(([, path, nightly, always]) => ({
  path: path!,
  nightly: nightly!,
  always: always!,
}))
const namesIn = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)

const leavesSomething = (path: string): boolean => isNightly(path) || /from '[^']*\/nightly\.ts'/.test(read(path))

test('each file that leaves something to the night is in the list, and the list names no other', () => {
  const own = 'server/test/nightly.test.ts'
  const leaving = [...files, ...clusterFiles].filter((path) => path !== own && leavesSomething(path))
  const listed = rows.map(({ path }) => path).filter((path) => path.endsWith('.ts'))
  assert.deepEqual(listed.toSorted(), leaving.toSorted())
})

test('the files on a cluster that the list leaves to the night are those that .ci/run does not name', () => {
  const all = clusterFiles.map((path) => basename(path, '.test.ts')).toSorted()
  const named = /^\.ci\/run-kubernetes (.+)$/m.exec(read('.ci/run'))![1]!.split(' ').toSorted()
  for (const name of named) assert.ok(all.includes(name), name)
  const row = rows.find(({ path }) => path === 'server/test/kubernetes')
  const left = all.filter((name) => !named.includes(name))
  assert.deepEqual(namesIn(row?.nightly ?? '').toSorted(), left)
  const always = namesIn(row?.always ?? '').filter((name) => all.includes(name))
  assert.deepEqual(always.toSorted(), named)
})

test('each file that the list names as one of every run is one, and no other file has that name', () => {
  const everyRun = files.filter((path) => !isNightly(path))
  for (const { path, always } of rows)
    for (const name of namesIn(always).filter((each) => each.endsWith('.test.ts'))) {
      const found = everyRun.filter((each) => matchesGlob(each, `**/${name}`))
      assert.ok(name.includes('*') ? found.length > 0 : found.length === 1, `${path}: ${name} is [${found.join(', ')}]`)
    }
})

test('a pure file needs nothing of the machine, and another one what it or its support names', () => {
  assert.deepEqual(needsOf('server/src/work/schedule.test.ts'), [])
  assert.deepEqual(needsOf('server/test/effects.test.ts'), [])
  assert.deepEqual(needsOf('server/test/console-live.e2e.test.ts'), ['git', 'server', 'chromium'])
  assert.deepEqual(needsOf('server/test/kills.e2e.test.ts'), ['git', 'docker', 'server'])
  assert.deepEqual(needsOf('server/src/router/http1/differential.test.ts'), ['nginx', 'haproxy'])
  assert.ok(needsOf('server/test/images.e2e.test.ts').includes('docker-registry'))
})

test('bin/ready.sh makes ready whatever a file may need', () => {
  const ready = read('bin/ready.sh')
  const words = new Set(files.flatMap(needsOf))
  assert.ok(words.size > 8)
  for (const word of words) assert.match(ready, new RegExp(`^ +${word.replace('.', '\\.')}\\)`, 'm'))
})

test('whole servers and engines wait, and what measures runs alone', () => {
  assert.equal(laneOf('server/test/scaling.e2e.test.ts'), 'alone')
  assert.equal(laneOf('server/test/tls.e2e.test.ts'), 'heavy')
  assert.equal(laneOf('server/src/runtimes/docker/docker.test.ts'), 'heavy')
  assert.equal(laneOf('server/src/work/schedule.test.ts'), 'quick')
})
