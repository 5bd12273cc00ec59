/** What a connection to the websocket API is about: its arguments stand in the query, as all clients send them. */
import Type from 'typebox'
import { nodeInPath, type Owner } from '../api/operation.ts'
import { Maybe, Text, Uuid } from '../api/schema.ts'

const project = nodeInPath('project', 'project')
const environment = nodeInPath('environment', 'environment')

/** An environment where one is named, else the project. */
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

/** Arguments that say the same again, or what we have no use for: clients name all that they know. */
export const Surroundings = {
  organization: Maybe(Text()),
  cluster: Maybe(Text()),
}

export const EnvironmentOrProject = {
  ...Surroundings,
  project: Maybe(Uuid()),
  environment: Maybe(Uuid()),
}

export const ofService = Type.Object({
  ...Surroundings,
  service: Uuid(),
  project: Maybe(Text()),
  environment: Maybe(Text()),
})
