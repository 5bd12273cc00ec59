/** The subject of a connection to the websocket API: clients send its arguments in the query. */
import Type from 'typebox'
import { nodeInPath, type Owner } from '../api/operations/operation.ts'
import { Discarded, Maybe, Text, Uuid } from '../api/operations/schema.ts'

const project = nodeInPath('project', 'project')
const environment = nodeInPath('environment', 'environment')

/** The environment if one is given, else the project. */
export const environmentOrProject: Owner = {
  ...project,
  inQuery: true,
  async find(db, params, principal) {
    if (params.environment === undefined) return project.find(db, params, principal)
    const found = await environment.find(db, params, principal)
    const isThere = params.project === undefined || found?.parentId === params.project.toLowerCase()
    return isThere ? found : null
  },
}

/** Redundant or unused arguments: clients send everything they know. */
export const StreamQuery = {
  organization: Maybe(Discarded(Text())),
  cluster: Maybe(Discarded(Text())),
}

export const EnvironmentOrProject = {
  ...StreamQuery,
  project: Maybe(Uuid()),
  environment: Maybe(Uuid()),
}

export const ofService = Type.Object({
  ...StreamQuery,
  service: Uuid(),
  project: Maybe(Text()),
  environment: Maybe(Text()),
})
