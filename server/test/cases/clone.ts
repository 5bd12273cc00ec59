/** Cases of clones. */
import type { Operation } from '../../src/api/operations/operation.ts'
import type { Case, Cases } from './case.ts'

/** A clone of a service, beside it in its environment. */
const family = ({ id, path }: Operation): Case | undefined =>
  /^\/\w+\/\{\w+\}\/clone$/.test(path) && id !== 'cloneEnvironment'
    ? { body: ({ environmentId }, { count }) => ({ name: `clone ${count}`, environment_id: environmentId }) }
    : undefined

export const cloneCases: Cases = {
  family,
  cases: { cloneEnvironment: { body: (_, { count }) => ({ name: `clone ${count}`, mode: 'PREVIEW' }) } },
}
