import { randomUUID } from 'node:crypto'

/**
 * A random UUID (version 4). Not a time-ordered one: the first eight digits identify a service in other services'
 * variable names, and services created within a minute of each other would share them.
 */
export const newId = (): string => randomUUID()

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export const isUuid = (text: string): boolean => uuid.test(text)
