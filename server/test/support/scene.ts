/** Scenes from the cases of all operations, for tests that need rows of every kind and know none of them. */
import assert from 'node:assert/strict'
import type { Operation } from '../../src/api/operations/operation.ts'
import type { Case, Scene, Values } from '../cases/case.ts'
import { allCases } from '../cases/index.ts'
import type { Json, TestApi } from './api.ts'
import { until } from './until.ts'

const cases = Object.assign({}, ...allCases.map((part) => part.cases)) as Record<string, Case>
const makers = Object.assign({}, ...allCases.map((part) => part.makers)) as Record<
  string,
  (values: Values, scene: Scene) => Promise<string>
>

/** Operations that have a case of their own. */
export const caseNames = Object.keys(cases)

/** Names of the path parameters that something makes. */
export const madeParams = Object.keys(makers)

export const caseOf = (operation: Operation): Case =>
  cases[operation.id] ?? allCases.map((part) => part.family?.(operation)).find((found) => found !== undefined) ?? {}

export const paramsOf = (path: string): string[] => [...path.matchAll(/\{(\w+)\}/g)].map(([, param]) => param!)

export const addressOf = (path: string, values: Values, query: Record<string, string> = {}): string => {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => values[name] ?? 'nothing-makes-this')
  const search = new URLSearchParams(query).toString()
  return search === '' ? filled : `${filled}?${search}`
}

const finalState = /^(READY|DEPLOYED|RESTARTED|STOPPED|CANCELED|.*_ERROR)$/

// Names that one scene has made must not clash with another's.
let count = 0

export const newScene = (api: TestApi): Scene => {
  count += 1
  const scene: Scene = {
    api,
    count,
    async post(path, body) {
      const answer = await api.call('POST', path, body)
      assert.ok(answer.status < 300, `${path}: ${JSON.stringify(answer.body)}`)
      return answer.body as Json
    },
    settled: (environmentId) =>
      until(async () => finalState.test((await api.call('GET', `/environment/${environmentId}/status`)).body.state), {
        timeoutMs: 20_000,
        what: 'the environment to come to rest',
      }),
    async need(values, param) {
      values[param] ??= await (makers[param] ?? assert.fail(`nothing makes {${param}}`))(values, scene)
      return values[param]
    },
  }
  return scene
}

/** Fresh rows for the path of an operation, and what its case sets up. */
export const valuesFor = async (operation: Operation, scene: Scene): Promise<Values> => {
  const values: Values = {}
  for (const param of paramsOf(operation.path)) if (param in makers) await scene.need(values, param)
  const { owner } = operation
  if (owner.inQuery === true && owner.param !== null && owner.param in makers) await scene.need(values, owner.param)
  await caseOf(operation).before?.(values, scene, operation)
  return values
}
