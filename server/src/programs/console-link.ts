/**
 * The link that the first start prints: it opens the console signed in. The code is behind the `#`, which browsers send
 * to no server, and opens one session. Later starts print none: printed output ends up in journals.
 */
import { hashOf } from '../api/auth/auth.ts'
import { hasConsole } from '../api/console/assets.ts'
import { createCode } from '../api/console/session-rows.ts'
import type { App } from '../app.ts'

/** Sessions are opened over https, or on this machine. */
const addressOf = (url: string, publicUrl: string | undefined): string =>
  publicUrl?.startsWith('https://') === true ? publicUrl : url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:)/, '//127.0.0.1')

/** Null but for the first start that has a console and knows the admin token. */
export const linkToConsole = async ({ parts, adminToken, url }: App): Promise<string | null> => {
  const { database, settings } = parts
  if (adminToken.text === null || !hasConsole(settings.consoleFolder)) return null
  const first = await database.query(
    `insert into installation (name, value) values ('console_link', 'printed') on conflict do nothing returning 1`,
  )
  if (first.length === 0 && adminToken.source !== 'renewed') return null
  const code = await createCode(database, hashOf(adminToken.text))
  return `${addressOf(url, settings.publicUrl)}/sign-in#code=${code}`
}
