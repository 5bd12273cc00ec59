/**
 * Deployment restrictions: which changes of a repository cause an automatic deployment (deployments/sources/git/judge.ts).
 * They are stored with the service and apply only to pushes; a requested deployment is never restricted.
 */
import Type from 'typebox'
import {
  type Context,
  creating,
  editing,
  type Operation,
  operation,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { AllRecorded, OneOf, Results, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { kinds } from '../../kinds.ts'
import { conflict, invalidField } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Facet, itemOf, onPart, onService, type Self } from '../facet.ts'
import { changeInner, type InnerChange, readInner } from './inner-configuration.ts'

const field = 'deployment_restrictions'
const param = 'deploymentRestrictionId'
const maxRestrictions = 100

const fields = {
  mode: OneOf(['EXCLUDE', 'MATCH'], {
    description:
      'MATCH: a push deploys the service only if a changed path begins with one of these values. EXCLUDE: changes of paths that begin with it do not count.',
  }),
  type: OneOf(['PATH']),
  value: Text(1024, {
    minLength: 1,
    description: 'The beginning of a path in the repository, such as "services/api/".',
  }),
}

const title = 'DeploymentRestrictionRequest'
const body = Type.Object(fields, { title })
const notHere = 'helm services are installed by a Kubernetes cluster; a deployment is refused.'
/** For kinds whose services this server does not run. */
const recordedBody = Type.Object(AllRecorded(fields, notHere), { title: `Helm${title}` }) as typeof body

type Wanted = Type.Static<typeof body>

const answer = Type.Object(
  { id: Uuid(), created_at: Timestamp(), updated_at: Timestamp(), ...body.properties },
  { title: 'DeploymentRestriction' },
)
type Restriction = Type.Static<typeof answer>

const checkValue = (value: string): void => {
  if (value.startsWith('/'))
    throw invalidField('/value', 'must not begin with a slash: paths are relative to the repository')
  if (value.includes('*')) throw invalidField('/value', 'must be the beginning of a path; wildcards are not supported')
  if (value.trim() === '') throw invalidField('/value', 'must not be blank')
}

const refuseDuplicate = (others: readonly Restriction[], wanted: Wanted): void => {
  const same = others.some((one) => one.mode === wanted.mode && one.type === wanted.type && one.value === wanted.value)
  if (same) throw conflict('restriction_taken', 'The service already has this restriction.')
}

const onRestriction = (self: Self) =>
  onPart(self, ['deployment_restriction', param], async (db, node, id) => {
    const kept = await readInner<Restriction[]>(db, node.id, field, [])
    return kept.some((one) => one.id === id.toLowerCase()) ? node : null
  })

const change = <Answer>(
  context: Context,
  eventType: InnerChange<unknown>['eventType'],
  work: (kept: Restriction[]) => Restriction[],
  show: (kept: Restriction[]) => Answer,
) =>
  changeInner<Restriction[], Answer>(context, { field, empty: [], eventType, subTarget: 'CONFIG', change: work }, show)

const create = (context: Context<Wanted>) => {
  const { body: wanted } = context
  checkValue(wanted.value)
  const at = context.parts.clock.now().toISOString()
  const made: Restriction = { id: newId(), created_at: at, updated_at: at, ...wanted }
  const add = (kept: Restriction[]): Restriction[] => {
    refuseDuplicate(kept, wanted)
    if (kept.length >= maxRestrictions)
      throw conflict('too_many', `A service can have at most ${maxRestrictions} restrictions.`)
    return [...kept, made]
  }
  return change(context, 'CREATE', add, () => made)
}

const edit = (context: Context<Partial<Wanted>>) => {
  const id = context.params[param]!.toLowerCase()
  const { body: sent } = context
  if (sent.value !== undefined) checkValue(sent.value)
  const at = context.parts.clock.now().toISOString()
  const replace = (kept: Restriction[]): Restriction[] =>
    kept.map((one) => {
      if (one.id !== id) return one
      const wanted = { ...one, ...sent, updated_at: at }
      const others = kept.filter((other) => other.id !== id)
      refuseDuplicate(others, wanted)
      return wanted
    })
  return change(context, 'UPDATE', replace, (kept) => kept.find((one) => one.id === id))
}

const remove = (context: Context) => {
  const id = context.params[param]!.toLowerCase()
  const without = (kept: Restriction[]): Restriction[] => kept.filter((one) => one.id !== id)
  return change(context, 'DELETE', without, () => undefined)
}

export const deploymentRestrictions: Facet = (self): Operation[] => {
  const tag = `${self.noun} Deployment Restriction`
  const collection = { tag, path: `${itemOf(self)}/deploymentRestriction`, ...onService(self) }
  const item = { tag, path: `${collection.path}/{${param}}`, ...onRestriction(self) }
  const noun = `${self.noun}DeploymentRestriction`
  const { runs } = kinds[self.kind]
  // Nothing deploys these on a push.
  const sent = runs === 'apps' || runs === 'charts' ? recordedBody : body
  return [
    operation({
      ...collection,
      id: `get${noun}s`,
      ...reading,
      summary: `List the deployment restrictions of ${self.nounWithArticle}: which pushes deploy it automatically`,
      answer: Results(answer),
      run: async ({ db, node }) => ({ results: await readInner<Restriction[]>(db, node.id, field, []) }),
    }),
    operation({
      ...collection,
      id: `create${noun}`,
      ...creating,
      summary: `Add a deployment restriction to ${self.nounWithArticle}: which pushes deploy it automatically`,
      body: sent,
      answer,
      run: create,
    }),
    operation({
      ...item,
      id: `edit${noun}`,
      ...editing,
      summary: `Change a deployment restriction of ${self.nounWithArticle}`,
      body: Type.Partial(sent),
      answer,
      run: edit,
    }),
    operation({
      ...item,
      id: `delete${noun}`,
      ...removing,
      summary: `Delete a deployment restriction of ${self.nounWithArticle}`,
      run: remove,
    }),
  ]
}
