/**
 * The operator's own token: given as it is, or made at the first start and kept in a file that only its owner reads. It
 * sees every organization of the installation.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Queryable } from '../store/database.ts'
import { createToken, hashOf, newTokenText } from './auth.ts'
import type { Parts } from './parts.ts'

const minimumLength = 24

const readFileIfThere = async (path: string): Promise<string | null> => {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

const isKnown = async (db: Queryable, text: string): Promise<boolean> =>
  (await db.query('select 1 from api_token where hash = $1 and revoked_at is null', [hashOf(text)])).length > 0

/** Makes `text` an Admin token of the organization, in the place of the one that had the name. */
const putAdminToken = async (parts: Parts, organizationId: string, name: string, text: string): Promise<void> => {
  if (await isKnown(parts.database, text)) return
  await parts.database.transaction(async (tx) => {
    await tx.query(
      `update api_token set revoked_at = clock_timestamp()
       where organization_id = $1 and lower(name) = lower($2) and revoked_at is null`,
      [organizationId, name],
    )
    await tx.query('delete from api_token where hash = $1', [hashOf(text)])
    const whole = { scopes: ['Admin'] as const, expiresAt: null, createdBy: null, isOperator: true }
    await createToken(tx, { organizationId, name, ...whole }, text)
    await tx.query(`select pg_notify('slipway_token', '')`)
  })
}

/**
 * The Admin token of the first start: `SLIPWAY_ADMIN_TOKEN` as it is, else the one in `<dataDir>/admin-token` (made
 * when it is not there, mode 0600). `created` says that this call made it.
 */
export const ensureAdminToken = async (
  parts: Parts,
  organizationId: string,
): Promise<{ token: string; created: boolean; file: string | null }> => {
  const given = parts.settings.adminToken?.reveal()
  if (given !== undefined) {
    if (given.length < minimumLength || /\s/.test(given))
      throw new Error(`SLIPWAY_ADMIN_TOKEN must have at least ${minimumLength} characters and no blanks`)
    await putAdminToken(parts, organizationId, 'SLIPWAY_ADMIN_TOKEN', given)
    return { token: given, created: false, file: null }
  }
  const file = join(parts.settings.dataDir, 'admin-token')
  const kept = await readFileIfThere(file)
  const token = kept ?? newTokenText()
  if (kept === null) await writeFile(file, `${token}\n`, { mode: 0o600 })
  await putAdminToken(parts, organizationId, 'first start', token)
  return { token, created: kept === null, file }
}
