/** Cases of variables and secrets: the families repeat by owner, so their cases follow from the path. */
import type { Operation } from '../../src/api/operations/operation.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

const parentOf = (path: string): string => path.split('/')[1]!

const withVariable =
  (family: 'environmentVariable' | 'secret'): Case['before'] =>
  async (values, scene, { path, id }) => {
    // An override is set at a narrower place than the variable that it overrides.
    const owner = /Override$/.test(id) && parentOf(path) !== 'project' ? 'project' : parentOf(path)
    const parent = await scene.need(values, `${owner}Id`)
    const made = await scene.post(`/${owner}/${parent}/${family}`, { key: `KEY_${scene.count}`, value: 'v' })
    values[`${family}Id`] = made.id
  }

const withGenericVariable = async (values: Values, scene: Scene): Promise<void> => {
  const body = { key: `KEY_${scene.count}`, value: 'v', is_secret: false }
  const place = { variable_scope: 'PROJECT', variable_parent_id: await scene.need(values, 'projectId') }
  values.variableId = (await scene.post('/variable', { ...body, ...place })).id
}

const withGenericAndApplication = async (values: Values, scene: Scene): Promise<void> => {
  await scene.need(values, 'applicationId')
  await withGenericVariable(values, scene)
}

const alias: Case['body'] = (_, { count }) => ({ key: `ALIAS_${count}` })
const varsFor = (scope: string) => [{ name: 'IMPORTED', value: '1', scope, is_secret: false }]

const family = ({ method, path, id }: Operation): Case | undefined => {
  const [, name, item, more] = /^\/\w+\/\{\w+\}\/(environmentVariable|secret)(\/\{\w+\})?(\/\w+)?$/.exec(path) ?? []
  if (name === undefined) return undefined
  if (item === undefined && more === undefined)
    return method === 'GET' ? {} : { body: (_, { count }) => ({ key: `MADE_${count}`, value: '1' }) }
  if (more === '/import') return { body: () => ({ vars: varsFor(parentOf(path).toUpperCase()) }) }
  const before = withVariable(name as 'secret')!
  if (more === '/alias') return { before, body: alias }
  // No scope is narrower than a project's own variables.
  if (more === '/override')
    return { before, body: () => ({ value: 'w' }), ...(id.includes('Project') ? { refused: 400 } : {}) }
  return method === 'PUT' ? { before, body: (_, { count }) => ({ key: `KEY_${count}`, value: 'w' }) } : { before }
}

export const variableCases: Cases = {
  family,
  cases: {
    importEnvironmentVariables: {
      before: (values, { need }) => need(values, 'applicationId'),
      body: () => ({ vars: varsFor('APPLICATION') }),
      query: ({ applicationId }) => ({ service_id: applicationId!, service_type: 'APPLICATION' }),
    },
    listVariables: {
      before: (values, { need }) => need(values, 'projectId'),
      query: ({ projectId }) => ({ parent_id: projectId!, scope: 'PROJECT' }),
    },
    createVariable: {
      before: (values, { need }) => need(values, 'projectId'),
      body: ({ projectId }) => ({
        key: 'MADE',
        value: '1',
        is_secret: false,
        variable_scope: 'PROJECT',
        variable_parent_id: projectId,
      }),
    },
    editVariable: { before: withGenericVariable, body: (_, { count }) => ({ key: `KEY_${count}`, value: 'w' }) },
    deleteVariable: { before: withGenericVariable },
    createVariableAlias: {
      before: withGenericAndApplication,
      body: ({ applicationId }) => ({ key: 'ALIAS', alias_scope: 'APPLICATION', alias_parent_id: applicationId }),
    },
    createVariableOverride: {
      before: withGenericAndApplication,
      body: ({ applicationId }) => ({ value: 'w', override_scope: 'APPLICATION', override_parent_id: applicationId }),
    },
  },
}
