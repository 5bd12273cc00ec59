/** Valid keys, values and paths. Pure; throws a 400 `ApiError` that names the field. */
import { invalidField } from '../lib/errors.ts'
import { reservedPrefixes } from './built-in.ts'

const maxKeyLength = 255
export const maxValueBytes = 65_536
const maxDescriptionLength = 255

export const checkKey = (key: string, field = '/key'): void => {
  if (key.length === 0 || key.length > maxKeyLength)
    throw invalidField(field, `must have 1 to ${maxKeyLength} characters`)
  if (!/^[-._A-Za-z0-9]+$/.test(key))
    throw invalidField(field, 'must have only letters, digits, underscores, dots and dashes')
  if (/^(\d|__)/.test(key)) throw invalidField(field, 'must not begin with a digit or two underscores')
  // Kubernetes refuses these as names of environment variables.
  if (key === '.' || key.startsWith('..')) throw invalidField(field, 'must not be a dot or begin with two dots')
  const prefix = reservedPrefixes.find((reserved) => key.toUpperCase().startsWith(reserved))
  if (prefix !== undefined) throw invalidField(field, `the prefix ${prefix} is reserved for built-in variables`)
}

export const checkValue = (value: string, field = '/value'): void => {
  if (Buffer.byteLength(value) > maxValueBytes)
    throw invalidField(field, `must not be longer than ${maxValueBytes} bytes`)
  if (value.includes('\0')) throw invalidField(field, 'must not contain a NUL character')
}

export const checkDescription = (description: string | null | undefined): void => {
  if ((description?.length ?? 0) > maxDescriptionLength)
    throw invalidField('/description', `must not be longer than ${maxDescriptionLength} characters`)
  if (description?.includes('\0')) throw invalidField('/description', 'must not contain a NUL character')
}

/** The path of a file in the container: absolute, normalized, and not a folder. */
export const checkMountPath = (path: string | null | undefined): void => {
  if (path === null || path === undefined) return
  const parts = path.split('/').slice(1)
  const isNormal = parts.every((part) => part !== '' && part !== '.' && part !== '..')
  if (!path.startsWith('/') || !isNormal || path.length > 1024)
    throw invalidField('/mount_path', 'must be the absolute path of a file, without `.` and `..`')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\u0000-\u001f\u007f]/.test(path)) throw invalidField('/mount_path', 'must not contain control characters')
}
