/**
 * Whether services are out of date: a fingerprint of everything that a deployment of each would use now. Triggers
 * clear it at every change of its inputs, and the first reader makes it again: so the next read after a change returns
 * OUT_OF_DATE, and no code has to invalidate it. All fingerprints missing in one read cost three statements, however
 * many they are.
 */
import type { Kind } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { specSql } from '../desired/owners-labels.ts'
import { withOwnFiles } from '../desired/variables-now.ts'
import { desiredOf, fingerprint, noVariables } from '../desired/workload.ts'
import { type DeploymentParts, type EffectiveVariables, kindOf } from '../parts.ts'

interface Row {
  id: string
  kind: Kind
  desiredHash: string | null
}

interface Found {
  id: string
  spec: Record<string, unknown>
  sealed: Record<string, string>
  organizationId: string
  /** Grows with every change: a fingerprint of an older version is not stored. */
  version: number
}

const readSubjects = (db: Queryable, rows: readonly Row[]): Promise<Found[]> =>
  db.query<Found>(
    `select n.id, ${specSql('n')} as spec, n.sealed, n.organization_id as "organizationId", s.wanted_version as version
     from service_state s join node n on n.id = s.service_id where s.service_id = any($1)`,
    [rows.map(({ id }) => id)],
  )

const wantedHashOf = async (
  parts: DeploymentParts,
  kindName: Kind,
  { organizationId, ...service }: Found,
  seen: EffectiveVariables | undefined,
): Promise<string> => {
  const kind = kindOf(parts, kindName)
  const variables =
    kind.environment === undefined && seen !== undefined
      ? await withOwnFiles(parts, kind, organizationId, service, seen)
      : noVariables
  const wanted = desiredOf(kind, service.spec)
  return fingerprint(parts.fingerprintKey, wanted.source, wanted.spec, variables)
}

/** Stored for the next reader. A reader never waits for a writer: that would hold a connection each. */
const keep = (db: Queryable, made: readonly { id: string; hash: string; version: number }[]): Promise<unknown> =>
  db.query(
    `update service_state s set wanted_hash = kept.hash from (
       select held.service_id, made.hash from service_state held
         join unnest($1::uuid[], $2::text[], $3::integer[]) as made (id, hash, version)
           on made.id = held.service_id and made.version = held.wanted_version
       where held.service_id = any($1::uuid[]) for no key update of held skip locked) kept
     where s.service_id = kept.service_id`,
    [made.map(({ id }) => id), made.map(({ hash }) => hash), made.map(({ version }) => version)],
  )

/** Makes the fingerprints of these rows, and stores those whose services did not change again meanwhile. */
export const renewWantedHashes = async (parts: DeploymentParts, db: Queryable, rows: readonly Row[]): Promise<void> => {
  if (rows.length === 0) return
  const found = new Map((await readSubjects(db, rows)).map((one) => [one.id, one]))
  const seeing = rows.filter(({ kind }) => kindOf(parts, kind).environment === undefined).map(({ id }) => id)
  const variables = seeing.length === 0 ? undefined : await parts.variables(seeing, db)
  const made: { id: string; hash: string; version: number }[] = []
  for (const row of rows) {
    const one = found.get(row.id)
    if (one === undefined) continue
    row.desiredHash = await wantedHashOf(parts, row.kind, one, variables?.get(row.id))
    made.push({ id: row.id, hash: row.desiredHash, version: one.version })
  }
  await keep(db, made)
}
