/** Cases of containers. */
import { newId } from '../../src/lib/ids.ts'
import type { Json, TestApi } from '../support/api.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

/** A registry of the organization. */
export const newRegistry = async ({ database, organizationId }: TestApi): Promise<string> => {
  const id = newId()
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values ($1, $2, 'container_registry', $2, 'container_registry', $3, $4)`,
    [id, organizationId, `registry ${id}`, { kind: 'DOCKER_HUB', url: 'https://docker.io' }],
  )
  return id
}

/** The least that a container is created from. */
export const containerBody = (registryId: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  registry_id: registryId,
  image_name: 'fake/serve',
  tag: '1.0',
  healthchecks: {},
  ...more,
})

/** A new container in an environment. */
export const newContainer = async (
  scene: Pick<Scene, 'api' | 'post'>,
  environmentId: string,
  more: Record<string, unknown> = {},
): Promise<Json> => {
  const body = containerBody(await newRegistry(scene.api), { name: `container ${newId()}`, ...more })
  return scene.post(`/environment/${environmentId}/container`, body)
}

const deployed: Case = {
  async before(values, scene) {
    await scene.post(`/container/${values.containerId}/deploy`, {})
    await scene.settled(values.environmentId!)
  },
}

/** A container that follows its image. */
const following = async (values: Values, scene: Scene): Promise<void> => {
  const environmentId = await scene.need(values, 'environmentId')
  await newContainer(scene, environmentId, { image_name: `follow/image-${scene.count}`, auto_deploy: true })
}

export const containerCases: Cases = {
  makers: {
    async containerId(values, scene) {
      return (await newContainer(scene, await scene.need(values, 'environmentId'))).id
    },
  },
  cases: {
    createContainer: {
      async before(values, { api }) {
        values.registryId = await newRegistry(api)
      },
      body: ({ registryId }, { count }) => containerBody(registryId!, { name: `made ${count}` }),
    },
    editContainer: { body: () => ({ tag: '1.1' }) },
    deployContainer: { body: () => ({ image_tag: '1.2' }) },
    redeployContainer: deployed,
    rebootContainer: deployed,
    uninstallContainer: { ...deployed, scopes: [] },
    listContainerDeploymentHistory: deployed,
    listContainerDeploymentHistoryV2: deployed,
    listContainerLog: deployed,
    autoDeployContainerEnvironments: {
      before: following,
      body: (_, { count }) => ({ image_name: `follow/image-${count}`, tag: '2.0' }),
    },
  },
}
