/**
 * Advanced settings of a kind: flat, dotted keys. Settings are stored with the service, so that a change makes it out
 * of date if the engine acts on it; unset ones have their defaults. A PUT replaces the whole set.
 */
import Type, { type TObject, type TProperties, type TSchema } from 'typebox'
import { actingIn, refuseMarked } from '../../api/operations/effects.ts'
import { type Context, type Operation, operation, ownOrganization, reading } from '../../api/operations/operation.ts'
import { type Json, partial } from '../../api/operations/schema.ts'
import { check } from '../../api/operations/validate.ts'
import { readRef } from '../../clusters/refs.ts'
import { wrongSetting } from '../../deployments/traffic/ingress-settings.ts'
import { invalidField } from '../../lib/errors.ts'
import { type Facet, itemOf, onService, type Self } from '../facet.ts'
import { changeInner, type InnerChange, readInner } from './inner-configuration.ts'
import { defaultsOf, type Settings } from './settings.ts'

type Values = Record<string, unknown>

const field = 'advanced_settings'

/** Consoles parse text that looks like JSON: such a value of a setting of type text is kept as that text. */
const takingJson = (schema: TSchema): TSchema => {
  const { type, enum: words, anyOf } = schema as Json
  if (anyOf !== undefined) return Object.assign({}, schema, { anyOf: anyOf.map((each) => takingJson(each as TSchema)) })
  return type === 'string' && words === undefined ? Object.assign({}, schema, { 'x-json-text': true }) : schema
}

/** Undeclared keys must be reported, not dropped: the whole body is accepted and checked here. */
export const settingsBody = (settings: Settings): TObject => {
  const taken = Object.entries(settings).map(([key, schema]) => [key, takingJson(schema)])
  return Object.assign(partial(Type.Object<TProperties>(Object.fromEntries(taken))), { 'x-anything': true })
}

const judge = (settings: Settings, sent: Values): Values => {
  const unknown = Object.keys(sent).find((key) => !Object.hasOwn(settings, key))
  if (unknown !== undefined)
    throw invalidField(`/${unknown.slice(0, 100)}`, 'is not an advanced setting of this service type')
  check(Type.Partial(Type.Object(settings)), sent)
  const wrong = wrongSetting(sent)
  if (wrong !== null) throw invalidField(`/${wrong.key}`, wrong.why)
  return sent
}

/** Settings that only Kubernetes clusters apply are reported as only recorded when they are set for another cluster. */
const noteUnplaced = async ({ db, node, parts, body, onlyRecorded }: Context, settings: Settings): Promise<void> => {
  const placed = [...actingIn('kubernetes', Type.Object(settings), body)]
  const ref = placed.length === 0 ? null : await readRef(db, node.id)
  if (ref === null || (await parts.clusters.of(ref.clusterId, db)).runtime.rollsItself) return
  for (const { path } of placed) onlyRecorded(path)
}

export const settingsEditor = (settings: Settings, defaults: Values) => (context: Context) => {
  const sent = judge(settings, context.body)
  const schema = Type.Object(settings)
  const change: InnerChange<Values> = {
    field,
    empty: {},
    eventType: 'UPDATE',
    subTarget: 'ADVANCED_SETTINGS',
    change(kept) {
      refuseMarked(schema, sent, kept)
      return sent
    },
  }
  return changeInner(context, change, (kept) => ({ ...defaults, ...kept }))
}

const operationsOf = (self: Self, settings: Settings, noun: string): Operation[] => {
  const defaults = defaultsOf(settings)
  const edit = settingsEditor(settings, defaults)
  const answer = Type.Object(settings, { title: `${self.noun}AdvancedSettings` })
  const path = `${itemOf(self)}/advancedSettings`
  const common = { tag: `${self.noun} Configuration`, path, ...onService(self), answer }
  return [
    operation({
      id: `getDefault${self.noun}AdvancedSettings`,
      ...reading,
      path: `/default${self.noun}AdvancedSettings`,
      tag: `${self.noun}s`,
      summary: `Read the default advanced settings of ${self.nounWithArticle}`,
      area: 'resources',
      owner: ownOrganization,
      answer,
      run: async () => defaults,
    }),
    operation({
      ...common,
      id: `get${noun}`,
      ...reading,
      summary: `Read all advanced settings of ${self.nounWithArticle}, including those at their defaults`,
      run: async ({ db, node }) => ({ ...defaults, ...(await readInner<Values>(db, node.id, field, {})) }),
    }),
    operation({
      ...common,
      id: `edit${noun}`,
      method: 'PUT',
      summary: `Replace the advanced settings of ${self.nounWithArticle}; omitted keys get their defaults`,
      scope: 'Write',
      body: settingsBody(settings),
      refusesMarked: true,
      status: 201,
      async run(context) {
        await noteUnplaced(context, settings)
        return edit(context)
      },
    }),
  ]
}

/** `noun`: the suffix of the ids of read and edit, if it is not `<Word>AdvancedSettings`. */
export const advancedSettings =
  (settings: Settings, noun?: string): Facet =>
  (self) =>
    operationsOf(self, settings, noun ?? `${self.noun}AdvancedSettings`)
