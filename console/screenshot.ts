/** One picture: where, as whom, and what is done before it. */
import type { Page } from 'playwright-core'

export interface Shot {
  path: string
  /** A token that may only read, nobody who is signed in, or an administrator without live streams; else the administrator. */
  as?: 'reader' | 'nobody' | 'cutOff'
  /** What is prepared before the page is opened. */
  before?(page: Page): Promise<unknown>
  /** After how long it is as it is to be seen, where it never has all that it asks for. */
  settleMs?: number
  /** What is done on the page before the picture. */
  act?(page: Page): Promise<unknown>
}

export type Shots = Record<string, Shot>

export const press =
  (name: string | RegExp) =>
  (page: Page): Promise<unknown> =>
    page.getByRole('button', { name }).first().click()
