/** A running API with its database, floor or ours, as the API figures see it: where, as whom, whose CPU, which rows. */
import type { Queryable } from '../server/src/store/database.ts'
import type { LoadTarget } from './load.ts'
import { seedEnvironments, seedServices, seedVariables, type Templates } from './seed.ts'

export interface Subject {
  origin: string
  /** Roots of the process trees that are paid for: program and PostgreSQL. */
  pids: number[]
  templates: Templates
  /** A project with 100 of the organization's 10,000 environments. */
  projectOf100(): Promise<string>
  /** An environment with 50 services. */
  environmentOf50(): Promise<string>
  /** An application that sees 1,000 variables. */
  applicationOf1000(): Promise<string>
  target(method: 'GET' | 'POST', path: string, more?: Partial<LoadTarget>): LoadTarget
}

/** Calls `make` once, however many callers there are. */
export const once = <T>(make: () => Promise<T>): (() => Promise<T>) => {
  let made: Promise<T> | undefined
  return () => {
    made ??= make()
    return made
  }
}

/** Clients that the API figures send from. */
export const apiClients = 16

export const makeSubject = (parts: {
  origin: string
  token: string
  pids: number[]
  db: Queryable
  templates: Templates
}): Subject => {
  const { origin, token, pids, db, templates } = parts
  return {
    origin,
    pids,
    templates,
    projectOf100: once(() => seedEnvironments(db, templates)),
    environmentOf50: once(() => seedServices(db, templates)),
    applicationOf1000: once(async () => {
      await seedVariables(db, templates)
      return templates.applicationId
    }),
    target: (method, path, more = {}) => ({
      origin,
      path,
      method,
      headers: {
        authorization: `Token ${token}`,
        ...(more.body === undefined ? {} : { 'content-type': 'application/json' }),
        ...more.headers,
      },
      clients: more.clients ?? apiClients,
      expected: more.expected ?? 200,
      ...(more.body === undefined ? {} : { body: more.body }),
    }),
  }
}
