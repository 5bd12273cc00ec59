/** Objects with several forms: a value or a field selects the form, then the object is checked against its schema. */
import Type, { type TObject, type TSchema } from 'typebox'
import { lenient } from '../api/operations/lenient.ts'
import type { Spec } from '../api/operations/resource.ts'
import { OneOf, partial, pick, withoutSecrets } from '../api/operations/schema.ts'
import { check } from '../api/operations/validate.ts'
import { ApiError, badRequest, invalidField } from '../lib/errors.ts'

/** The declared fields of a value with their defaults; a 400 names fields below `at`, a JSON pointer. */
export const readForm = (schema: TObject, value: unknown, at: string): Spec => {
  const picked = pick(schema, lenient(schema, value), true)
  try {
    check(schema, picked)
  } catch (error) {
    if (!(error instanceof ApiError) || error.details === undefined) throw error
    const details = error.details.map(({ field, message }) => ({ field: `${at}${field}`, message }))
    const { field, message } = details[0]!
    throw badRequest(`${field.slice(1).replaceAll('/', '.')}: ${message}`, details)
  }
  return picked as Spec
}

/**
 * A schema for an object with one of these forms, as loose as all of them together; read bodies with `readFormBy`.
 * `words`: which form it is.
 */
export const FormsOf = (
  discriminator: string,
  forms: Record<string, TObject>,
  words: TSchema = OneOf(Object.keys(forms)),
) => {
  const fields = Object.assign({}, ...Object.values(forms).map((form) => partial(form).properties))
  return Type.Unsafe<Spec>({
    type: 'object',
    properties: { [discriminator]: words, ...fields },
    'x-anything': true,
  })
}

/** The same for responses. */
export const openForms = (forms: Record<string, TObject>): Record<string, TObject> =>
  Object.fromEntries(Object.entries(forms).map(([word, form]) => [word, withoutSecrets(form)]))

/** Like `readForm`, for a value whose field `discriminator` selects the form. */
export const readFormBy = (discriminator: string, forms: Record<string, TObject>, value: Spec, at: string): Spec => {
  const word = String(value[discriminator])
  const form = Object.hasOwn(forms, word) ? forms[word] : undefined
  if (form === undefined)
    throw invalidField(`${at}/${discriminator}`, `must be one of ${Object.keys(forms).join(', ')}`)
  return { [discriminator]: word, ...readForm(form, value, at) }
}
