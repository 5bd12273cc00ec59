/**
 * Outputs of a program for the other services: a JSON file of names and values that it leaves at its end. They become
 * built-in variables of the whole environment.
 */

import { DeploymentError } from '../../lib/errors.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { Output } from '../deployments.ts'
import { outputFiles } from './files.ts'

const maxOutputs = 100
const maxValueBytes = 64 * 1024
/** All values together: they are in the environment of every other program. */
const maxBytes = 256 * 1024

const refuse = (why: string): DeploymentError => new DeploymentError('output_refused', `The output file ${why}.`)

const parse = (text: string): Record<string, unknown> => {
  try {
    const found = readJson(text)
    if (typeof found === 'object' && found !== null && !Array.isArray(found)) return found as Record<string, unknown>
  } catch {
    throw refuse('is not JSON')
  }
  throw refuse('must be a JSON object of names')
}

const toOutput = ([name, entry]: [string, unknown]): Output => {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,199}$/.test(name))
    throw refuse('has an invalid name: use letters, digits and _, not beginning with a digit')
  if (typeof entry !== 'object' || entry === null || !('value' in entry)) throw refuse(`has no value for ${name}`)
  const { value, sensitive } = entry as { value: unknown; sensitive?: unknown }
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  if (Buffer.byteLength(text) > maxValueBytes) throw refuse(`has more than 64 KiB for ${name}`)
  if (text.includes('\0')) throw refuse(`has a zero byte in ${name}`)
  return { name, value: text, sensitive: sensitive === true }
}

/** Pure. Null if no file was left. Rejects an invalid file. */
export const parseOutputs = (textAt: (path: string) => string | undefined): Output[] | null => {
  const text = outputFiles.map(textAt).find((each) => each !== undefined)
  if (text === undefined) return null
  const entries = Object.entries(parse(text))
  if (entries.length > maxOutputs) throw refuse(`has more than ${maxOutputs} entries`)
  const outputs = entries.map(toOutput)
  if (outputs.reduce((sum, { value }) => sum + Buffer.byteLength(value), 0) > maxBytes)
    throw refuse('has more than 256 KiB of values')
  return outputs
}

/** Rows of outputs, secrets sealed: made before the transaction that writes them. */
export const sealOutputs = (sealer: Sealer, organizationId: string, outputs: readonly Output[]) =>
  Promise.all(
    outputs.map(async ({ name, value, sensitive }) => {
      const id = newId()
      const place = { table: 'service_output', row: id, column: 'sealed' }
      return sensitive
        ? { id, name, value: null, sealed: await sealer.seal(organizationId, place, value) }
        : { id, name, value, sealed: null }
    }),
  )

type OutputRow = Awaited<ReturnType<typeof sealOutputs>>[number]

/** Replaces the former outputs. Runs that end at the same time take turns: the last one's outputs are complete. */
export const writeOutputs = async (
  tx: Queryable,
  organizationId: string,
  serviceId: string,
  rows: readonly OutputRow[],
): Promise<void> => {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('service_output ' || $1, 0))`, [serviceId])
  await tx.query('delete from service_output where service_id = $1', [serviceId])
  await tx.query(
    `insert into service_output (id, organization_id, service_id, name, value, sealed)
     select (o ->> 'id')::uuid, $1, $2, o ->> 'name', o ->> 'value', o ->> 'sealed' from jsonb_array_elements($3) o`,
    [organizationId, serviceId, JSON.stringify(rows)],
  )
}
