import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ChartedObject, differences, judge, readObjects, splitDocuments } from './charted.ts'

const object = (kind: string, name: string, more: object = {}, metadata: object = {}): ChartedObject => ({
  ...{ apiVersion: 'v1', kind, metadata: { name, ...metadata } },
  ...more,
})

test('documents are split where YAML splits them, and those without content are left out', () => {
  const text = '---\n# Source: a\na: 1\n--- # b\nb: |\n  ---\n ---\n---\n\n# nothing\n---\t\nc: "---"\n'
  assert.deepEqual(splitDocuments(text), ['\n# Source: a\na: 1', ' # b\nb: |\n  ---\n ---', '\t\nc: "---"\n'])
  assert.deepEqual(splitDocuments(''), [])
  assert.equal(splitDocuments('a: 1\n---\n'.repeat(500)).length, 500)
  assert.throws(() => splitDocuments('a: 1\n---\n'.repeat(501)), /501 objects/)
})

test('the objects of lists are judged like others, and what is not an object is refused', () => {
  const [a, b] = [object('ConfigMap', 'a'), object('ConfigMap', 'b')]
  const list = { apiVersion: 'v1', kind: 'List', items: [a, { apiVersion: 'v1', kind: 'ConfigMapList', items: [b] }] }
  assert.deepEqual(readObjects(`${JSON.stringify(list)}\n\n`), [a, b])
  const deep = [1, 2, 3, 4].reduce<unknown>((items) => ({ apiVersion: 'v1', kind: 'List', items: [items] }), a)
  const wrong: [unknown, RegExp][] = [
    [[a], /not an object/],
    [5, /not an object/],
    [{ kind: 'A', metadata: { name: 'a' } }, /without an apiVersion/],
    [{ apiVersion: 'v1', kind: 'A', metadata: { generateName: 'a' } }, /kind A without a name/],
    [{ apiVersion: 'v1', kind: 'List', items: [null] }, /not an object/],
    [deep, /lists of lists/],
    [{ apiVersion: 'v1', kind: 'List', items: Array(501).fill(a) }, /501 objects/],
  ]
  for (const [value, reason] of wrong) assert.throws(() => readObjects(JSON.stringify(value)), reason)
})

const scopeOf = (_: string, kind: string) =>
  kind.startsWith('Cluster') || kind === 'Namespace' ? 'cluster' : kind === 'Thing' ? null : 'namespaced'

test('a chart stays in its namespace unless it may ask for the whole cluster, and never goes to another one', () => {
  const verdict = (objects: ChartedObject[], allowClusterWide = false): string => {
    try {
      judge(objects, { scopeOf, namespace: 'own', allowClusterWide })
      return ''
    } catch (error) {
      return (error as Error).message
    }
  }
  const inOwn = [object('ConfigMap', 'a'), object('Role', 'b', {}, { namespace: 'own' })]
  const wide = [object('ClusterRole', 'c'), object('Namespace', 'd')]
  assert.equal(verdict(inOwn), '')
  assert.match(verdict([...inOwn, ...wide]), /whole cluster \(ClusterRole c, Namespace d\): set allow_cluster_wide/)
  assert.equal(verdict([...inOwn, ...wide], true), '')
  for (const namespace of ['kube-system', '', 'OWN'])
    assert.match(verdict([object('ConfigMap', 'a', {}, { namespace })], true), /other namespaces .*ConfigMap a/)
  assert.match(verdict([object('Thing', 't')], true), /does not know/)
  const many = Array.from({ length: 8 }, (_, index) => object('ClusterRole', `r${index}`))
  assert.match(verdict(many), /r4 and 3 more\)/)
})

test('a plan names what an upgrade adds, changes and removes, without its values', () => {
  const before = [object('Secret', 'a', { data: { x: 'old' } }), object('Service', 'b'), object('Service', 'c')]
  const after = [object('Secret', 'a', { data: { x: 'new' } }), object('Service', 'b'), object('ConfigMap', 'c')]
  assert.deepEqual(differences(before, after), [
    { name: 'Secret a', change: 'changed' },
    { name: 'ConfigMap c', change: 'added' },
    { name: 'Service c', change: 'removed' },
  ])
  assert.deepEqual(differences(after, after), [])
})
