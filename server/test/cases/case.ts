/** The facts that the coverage test needs about an operation beside its declaration. */
import type { Operation, Scope } from '../../src/api/operations/operation.ts'
import type { Json, TestApi } from '../support/api.ts'

/** Ids by the name of their path parameter. */
export type Values = Record<string, string>

/** The tools with which a case prepares its data. */
export interface Scene {
  api: TestApi
  /** Sends a POST as an Admin; returns the body, or fails. */
  post(path: string, body: object): Promise<Json>
  /** A different number for each operation: for names that must not clash. */
  readonly count: number
  /** The value of a path parameter, made together with its parents if it does not exist yet. */
  need(values: Values, param: string): Promise<string>
  /** Waits until the environment is at rest. */
  settled(environmentId: string): Promise<unknown>
}

export interface Case {
  /** Prepares data; the values of the path's own parameters are known. */
  before?(values: Values, scene: Scene, operation: Operation): Promise<unknown>
  /** Cleans up after `before`. */
  after?(values: Values, scene: Scene): Promise<unknown>
  body?(values: Values, scene: Scene): unknown
  /** Fields besides those of `body` that a text in a secret field requires, where its schema does not say so. */
  withSecret?(field: string, text: string): object | undefined
  query?(values: Values): Record<string, string>
  /** The status in this setup although the caller is allowed; the body is an error. */
  refused?: number
  /** Lesser scopes that are sufficient, where the rule by paths (`admitted`) does not say so. */
  scopes?: Scope[]
}

export interface Cases {
  /** Makes the record that a path parameter names, fresh for each operation. */
  makers?: Record<string, (values: Values, scene: Scene) => Promise<string>>
  cases: Record<string, Case>
  /** Cases of operations that repeat for each owner, recognized by their paths. */
  family?(operation: Operation): Case | undefined
}
