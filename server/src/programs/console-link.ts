/**
 * The link that the first start prints: it opens the console signed in. The code is behind the `#`, which browsers send
 * to no server, and opens one session. Later starts print none: printed output ends up in journals.
 */
import { hashOf } from '../api/auth/auth.ts'
import { hasConsole } from '../api/console/assets.ts'
import { createCode } from '../api/console/session-rows.ts'
import type { App } from '../wiring/app.ts'

/** Sessions are opened only over https, or on this machine. */
const addressOf = (url: string, publicUrl: string | undefined): string =>
  publicUrl?.startsWith('https://') === true ? publicUrl : url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:)/, '//127.0.0.1')

/** A link to a console at this address; null if the admin token is not known. */
export const newLink = async ({ parts, adminToken }: App, address: string): Promise<string | null> =>
  adminToken.text === null
    ? null
    : `${address}/sign-in#code=${await createCode(parts.database, hashOf(adminToken.text))}`

/** Null except for the first start that has a console and knows the admin token. */
export const linkToConsole = async (app: App): Promise<string | null> => {
  const { parts, adminToken, url } = app
  const { database, settings } = parts
  if (adminToken.text === null || !hasConsole(settings.consoleFolder)) return null
  const first = await database.query(
    `insert into installation (name, value) values ('console_link', 'printed') on conflict do nothing returning 1`,
  )
  if (first.length === 0 && adminToken.source !== 'renewed') return null
  return newLink(app, addressOf(url, settings.publicUrl))
}
