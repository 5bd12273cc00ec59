/** Cases of releases: services that were deployed twice, with another configuration each time. */
import type { Operation } from '../../src/api/operations/operation.ts'
import { ownKinds } from '../../src/kinds.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

const serviceIn = (values: Values): string => {
  const kind = ownKinds.find((each) => values[`${each}Id`] !== undefined)!
  return `/${kind}/${values[`${kind}Id`]}`
}

const deployedTwice = async (values: Values, scene: Scene): Promise<void> => {
  const path = serviceIn(values)
  for (const memory of [300, 400]) {
    await scene.api.call('PUT', path, { memory })
    await scene.post(`${path}/deploy`, {})
    await scene.settled(values.environmentId!)
  }
}

const family = ({ path }: Operation): Case | undefined => {
  // No chart is deployed to a Docker engine.
  if (path.startsWith('/helm/')) return undefined
  if (/^\/\w+\/\{\w+\}\/release$/.test(path)) return { before: deployedTwice }
  if (!/^\/\w+\/\{\w+\}\/rollback$/.test(path)) return undefined
  return { before: deployedTwice, body: () => ({ release_id: null }), scopes: ['Deploy'] }
}

export const releaseCases: Cases = {
  cases: {
    rollbackEnvironment: {
      async before(values, scene) {
        await scene.need(values, 'applicationId')
        await deployedTwice(values, scene)
      },
      body: ({ environmentId }) => ({ execution_id: `${environmentId}-1` }),
      scopes: ['Deploy'],
    },
  },
  family,
}
