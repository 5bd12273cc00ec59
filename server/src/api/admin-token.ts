/**
 * The operator's own token, one for all servers of a database: given as it is, or made by the server whose start is the
 * first of all, which keeps it in a file that only its owner reads. It sees every organization of the installation. A
 * revoked text stays revoked, whoever made it and however often servers start. Steps are one transaction, the file is
 * written before: a start that was killed is simply repeated.
 */
import { rm } from 'node:fs/promises'
import { hostname } from 'node:os'
import type { Queryable } from '../store/database.ts'
import { lockSql } from '../store/locks.ts'
import { writeOwnAudit } from '../store/own-audit.ts'
import { readServerId, readTokenFile, tokenFileOf, writeTokenFile } from './admin-token-file.ts'
import { createToken, hashOf, newTokenText } from './auth.ts'
import type { Parts } from './parts.ts'

export interface AdminToken {
  /** Its text, where this server knows it. */
  text: string | null
  /**
   * `made` by this very first start; `renewed` in the place of one that was revoked or lost; `kept` in our file; `given`
   * by SLIPWAY_ADMIN_TOKEN, now or, with no text, at an earlier start; `elsewhere`: another server of the database has it.
   */
  source: 'made' | 'renewed' | 'kept' | 'given' | 'elsewhere'
  file: string
  /** Which server made it, for people, where that is known. */
  madeAt: string | null
}

const minimumLength = 24
const givenName = 'SLIPWAY_ADMIN_TOKEN'
const madeName = 'first start'

type State = 'active' | 'revoked' | 'unknown'

interface Known {
  state: State
  id: string | null
  isOperator: boolean
}

const stateOf = async (tx: Queryable, text: string | null): Promise<Known> => {
  const unknown: Known = { state: 'unknown', id: null, isOperator: false }
  if (text === null) return unknown
  const [row] = await tx.query<Known>(
    `select id, is_operator as "isOperator", case when revoked_at is null then 'active' else 'revoked' end as state
     from api_token where hash = $1`,
    [hashOf(text)],
  )
  return row ?? unknown
}

interface Former {
  id: string
  name: string
  organizationId: string
}

const note = (tx: Queryable, by: string, eventType: string, { id, name, organizationId }: Former, change?: object) =>
  writeOwnAudit(tx, organizationId, {
    actor: 'OPERATOR',
    by,
    eventType,
    targetType: 'ORGANIZATION',
    subTargetType: 'API_TOKEN',
    target: { id, name },
    ...(change === undefined ? {} : { change }),
  })

/** Takes away the operator's tokens but the one with this id. */
const takeAway = (tx: Queryable, heir: string | null): Promise<Former[]> =>
  tx.query<Former>(
    `update api_token set revoked_at = clock_timestamp()
     where revoked_at is null and is_operator and id is distinct from $1
     returning id, name, organization_id as "organizationId"`,
    [heir],
  )

/** What they made is from then on made by `heir`: its maker was replaced, and nobody has revoked it. */
const inherit = async (tx: Queryable, former: readonly Former[], by: string, heir: string): Promise<void> => {
  for (const token of former) {
    const kept = await tx.query('update api_token set created_by = $1 where created_by = $2 returning 1', [
      heir,
      token.id,
    ])
    await note(tx, by, 'DELETE', token, { replaced_by: by, tokens_handed_over: kept.length })
  }
  if (former.length > 0) await tx.query(`select pg_notify('slipway_token', '')`)
}

/** Makes `text` the operator's token, in the place of whatever was. */
const put = async (tx: Queryable, organizationId: string, name: string, text: string): Promise<void> => {
  const former = await takeAway(tx, null)
  // Anybody may have called a token so.
  const free = `update api_token set name = left(name, 200) || ' ' || id
    where organization_id = $1 and lower(name) = lower($2) and revoked_at is null`
  await tx.query(free, [organizationId, name])
  const whole = { scopes: ['Admin'] as const, expiresAt: null, createdBy: null, isOperator: true }
  const { id } = await createToken(tx, { organizationId, name, ...whole }, text)
  await note(tx, name, 'CREATE', { id, name, organizationId })
  await inherit(tx, former, name, id)
}

/** Starts of several servers at once go one after another. */
const alone = <T>({ database }: Parts, work: (tx: Queryable) => Promise<T>): Promise<T> =>
  database.transaction(async (tx) => {
    await tx.query(lockSql('adminToken'))
    return work(tx)
  })

const giveToken = async (parts: Parts, organizationId: string, text: string): Promise<AdminToken> => {
  if (text.length < minimumLength || /\s/.test(text))
    throw new Error(`SLIPWAY_ADMIN_TOKEN must have at least ${minimumLength} characters and no blanks`)
  const { dataDir } = parts.settings
  const isStale = await alone(parts, async (tx) => {
    const { state, id, isOperator } = await stateOf(tx, text)
    if (state === 'revoked')
      throw new Error('SLIPWAY_ADMIN_TOKEN was revoked, and what was revoked stays so: give it another value')
    if (state === 'unknown') await put(tx, organizationId, givenName, text)
    else if (isOperator) await inherit(tx, await takeAway(tx, id), givenName, id!)
    return (await stateOf(tx, await readTokenFile(dataDir))).state === 'revoked'
  })
  // Whoever reads the file should find none rather than one that opens nothing.
  if (isStale) await rm(tokenFileOf(dataDir), { force: true })
  return { text, source: 'given', file: tokenFileOf(dataDir), madeAt: null }
}

interface Maker {
  server: string
  place: string
}

/** The server that makes the token: the first to ask, unless there is one already that it does not know. */
const makerOf = async (tx: Queryable, self: Maker, isKnown: boolean): Promise<Maker | null> => {
  const read = async () =>
    (await tx.query<{ value: string }>(`select value from installation where name = 'admin_token'`))[0]?.value
  const found = await read()
  if (found !== undefined) return JSON.parse(found) as Maker
  const [other] = isKnown ? [] : await tx.query('select 1 from api_token where is_operator limit 1')
  if (other !== undefined) return null
  await tx.query(`insert into installation (name, value) values ('admin_token', $1)`, [JSON.stringify(self)])
  return self
}

const keepToken = async (parts: Parts, organizationId: string): Promise<AdminToken> => {
  const { dataDir } = parts.settings
  const file = tokenFileOf(dataDir)
  const self = { server: await readServerId(dataDir), place: `${hostname()}:${file}` }
  return alone(parts, async (tx) => {
    const kept = await readTokenFile(dataDir)
    const { state, isOperator } = await stateOf(tx, kept)
    if (state === 'active') return { text: kept, source: 'kept', file, madeAt: null }
    const maker = await makerOf(tx, self, isOperator)
    if (maker?.server !== self.server) return { text: null, source: 'elsewhere', file, madeAt: maker?.place ?? null }
    const [given] = await tx.query(
      'select 1 from api_token where is_operator and revoked_at is null and name = $1 limit 1',
      [givenName],
    )
    if (given !== undefined) return { text: null, source: 'given', file, madeAt: null }
    const isFirst = (await tx.query('select 1 from api_token where is_operator limit 1')).length === 0
    const text = state === 'unknown' && kept !== null && kept.length >= minimumLength ? kept : newTokenText()
    if (text !== kept) await writeTokenFile(dataDir, text)
    await put(tx, organizationId, madeName, text)
    return { text, source: isFirst ? 'made' : 'renewed', file, madeAt: null }
  })
}

/**
 * The operator's token: `SLIPWAY_ADMIN_TOKEN` as it is, else the one of the first start. Rejects for a given one that was
 * revoked.
 */
export const ensureAdminToken = (parts: Parts, organizationId: string): Promise<AdminToken> => {
  const given = parts.settings.adminToken?.reveal()
  return given === undefined ? keepToken(parts, organizationId) : giveToken(parts, organizationId, given)
}
