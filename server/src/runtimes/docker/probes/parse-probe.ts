/** Parses the label of a liveness probe, which anybody may have written. Pure. */
import { tryJson } from '../../../lib/foreign-text/read-json.ts'
import type { Probe } from '../../runtime.ts'

type Fields = Record<string, unknown>

const fieldsOf = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {})

/** A week: past that a timer would end at once. */
const mostSeconds = 604_800

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0 && value <= mostSeconds

const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) > 0 && (value as number) <= 65_535

const parseCheck = (value: unknown): Probe['check'] | null => {
  const { kind, port, path, scheme, command, service } = fieldsOf(value)
  if (kind === 'tcp' && isPort(port)) return { kind, port }
  if (kind === 'http' && isPort(port) && typeof path === 'string' && (scheme === 'HTTP' || scheme === 'HTTPS'))
    return { kind, port, path, scheme }
  if (kind === 'grpc' && isPort(port) && typeof service === 'string') return { kind, port, service }
  if (kind === 'exec' && Array.isArray(command) && command.every((part) => typeof part === 'string'))
    return { kind, command }
  return null
}

const parse = (text: string): Fields => {
  return fieldsOf(tryJson(text))
}

/** Null for anything but a whole probe. */
export const parseProbe = (text: string): Probe | null => {
  const fields = parse(text)
  const check = parseCheck(fields.check)
  const { initialDelaySeconds, periodSeconds, timeoutSeconds, successThreshold, failureThreshold } = fields
  const counts = { initialDelaySeconds, periodSeconds, timeoutSeconds, successThreshold, failureThreshold }
  if (check === null || !Object.values(counts).every(isCount)) return null
  return { check, ...(counts as Omit<Probe, 'check'>) }
}
