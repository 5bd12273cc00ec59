/** What the coverage test needs to know of an operation beside what the operation says of itself. */
import type { Operation, Scope } from '../../src/api/operations/operation.ts'
import type { Json, TestApi } from '../support/api.ts'

/** Ids by the name of their path parameter. */
export type Values = Record<string, string>

/** What a case may use to set its scene. */
export interface Scene {
  api: TestApi
  /** Sends a POST as an Admin; its answer's body, or an assertion. */
  post(path: string, body: object): Promise<Json>
  /** Another number for each operation: for names that must not clash. */
  readonly count: number
  /** The value of a path parameter, made together with its parents if it does not exist yet. */
  need(values: Values, param: string): Promise<string>
  /** Waits until nothing of the environment is under way. */
  settled(environmentId: string): Promise<unknown>
}

export interface Case {
  /** Sets the scene; the values of the path's own parameters are there. */
  before?(values: Values, scene: Scene, operation: Operation): Promise<unknown>
  /** Ends what `before` began. */
  after?(values: Values, scene: Scene): Promise<unknown>
  body?(values: Values, scene: Scene): unknown
  /** What a body has beside `body`'s to take a text in a secret field, where its schema does not say. */
  withSecret?(field: string, text: string): object | undefined
  query?(values: Values): Record<string, string>
  /** The status that this set-up gets although it is allowed; its body is an error. */
  refused?: number
  /** Lesser scopes that are sufficient, where the rule by paths (`admitted`) does not say so. */
  scopes?: Scope[]
}

export interface Cases {
  /** Makes what a path parameter names, fresh for each operation. */
  makers?: Record<string, (values: Values, scene: Scene) => Promise<string>>
  cases: Record<string, Case>
  /** Cases of operations that repeat for each owner, recognized by their paths. */
  family?(operation: Operation): Case | undefined
}
