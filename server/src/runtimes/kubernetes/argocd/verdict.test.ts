import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Application, isAskedFor, isInTheWay, progressOf, toldOf } from './verdict.ts'

const commit = 'a'.repeat(40)
const app = (status: object = {}, more: object = {}): Application => ({
  ...{ metadata: { name: 'slipway-a', ...more }, status: { sync: { status: 'Synced', revision: commit }, ...status } },
})
const health = (status: string, message?: string): object => ({ health: { status, message } })
const sync = (status: string): object => ({ sync: { status, revision: commit } })

test('health and synchronization of an app are our states, with its own sentences', () => {
  const resources = [
    { kind: 'Deployment', name: 'shop', health: { status: 'Degraded', message: 'exceeded its progress deadline' } },
    { kind: 'Service', name: 'shop', health: { status: 'Healthy' } },
  ]
  const conditions = [
    { type: 'ComparisonError', message: 'path does not exist\n' },
    { type: 'SharedResourceWarning', message: 'not told' },
  ]
  const table: [Application, string, string | null][] = [
    [app(health('Healthy')), 'RUNNING', null],
    [app(health('Progressing')), 'STARTING', 'Argo CD says Progressing and Synced.'],
    [app(health('Suspended', 'paused')), 'WARNING', 'Argo CD says Suspended and Synced. paused.'],
    [app(health('Missing')), 'ERROR', 'Argo CD says Missing and Synced.'],
    [
      app({ ...health('Degraded'), resources }),
      'ERROR',
      'Argo CD says Degraded and Synced. Deployment shop: Degraded: exceeded its progress deadline.',
    ],
    [app({ ...health('Healthy'), ...sync('OutOfSync') }), 'WARNING', 'Argo CD says Healthy and OutOfSync.'],
    [
      app({ ...health('Healthy'), ...sync('Unknown'), conditions }),
      'WARNING',
      'Argo CD says Healthy and Unknown. ComparisonError: path does not exist.',
    ],
    [
      app({ ...health('Missing'), ...sync('OutOfSync'), operationState: { phase: 'Failed', message: 'hook failed' } }),
      'ERROR',
      'Argo CD says Missing and OutOfSync. hook failed.',
    ],
    [app(health('Novel')), 'WARNING', 'Argo CD says Novel and Synced.'],
    [app(health('Healthy'), { deletionTimestamp: 'now' }), 'WARNING', 'Argo CD removes the app.'],
    [app({ health: 5, sync: null, conditions: {}, resources: 'x' }), 'STARTING', null],
    [{ metadata: { name: 'a' } }, 'STARTING', null],
  ]
  for (const [given, state, message] of table) {
    const told = toldOf(given)
    assert.equal(told.state, state, JSON.stringify(given))
    if (state !== 'STARTING' || message !== null) assert.equal(told.message, message)
    else assert.match(told.message!, /is its application controller running/)
  }
  const long = toldOf(app(health('Degraded', 'x'.repeat(100_000)))).message!
  assert.ok(long.length < 1000, 'what a stranger says is cut')
})

test('a synchronization is waited for until the app is at the commit and well, and its failure is final', () => {
  const ended = (phase: string, more: object = {}) =>
    app({ ...health('Healthy'), operationState: { phase, message: 'm' }, ...more })
  const asked = { ...ended('Succeeded'), operation: { info: [] } }
  const table: [Application, string, RegExp][] = [
    [ended('Succeeded'), 'done', /^$/],
    [
      ended('Succeeded', { sync: { status: 'Synced', revision: 'b'.repeat(40) } }),
      'waiting',
      /has not come to the commit/,
    ],
    [ended('Succeeded', health('Degraded')), 'waiting', /^Argo CD says Degraded and Synced\.$/],
    [ended('Failed'), 'failed', /^Argo CD could not synchronize the app: m\.$/],
    [ended('Error'), 'failed', /: m\.$/],
    [asked, 'waiting', /Waiting for Argo CD to begin/],
    [{ ...ended('Running'), operation: {} }, 'waiting', /^Argo CD synchronizes the app: m\.$/],
    [{ ...ended('Failed'), operation: {} }, 'waiting', /Waiting for Argo CD to begin/],
  ]
  for (const [given, is, message] of table) {
    const progress = progressOf(given, commit)
    assert.equal(progress.is, is, JSON.stringify(given))
    assert.match(progress.message, message)
  }
})

test('a synchronization is asked for once for each revision, and another one is in the way', () => {
  const info = (value: string): object => ({ info: [{ name: 'slipway.revision', value }] })
  const now: Application = { ...app(), operation: info('one') }
  const before = app({ operationState: { operation: info('one') } })
  assert.deepEqual([isAskedFor(now, 'one'), isAskedFor(now, 'two'), isInTheWay(now, 'two')], ['now', null, true])
  assert.deepEqual([isAskedFor(before, 'one'), isAskedFor(before, 'two')], ['before', null])
  assert.deepEqual([isInTheWay(now, 'one'), isInTheWay(before, 'two')], [false, false])
})
