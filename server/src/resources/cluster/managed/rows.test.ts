import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../../test/support/database.ts'
import { newId } from '../../../lib/ids.ts'
import { ask, claimRuns } from './rows.ts'

const database = await testDatabase()
after(() => database.close())

const newNode = async (id: string, kind: string, organizationId: string): Promise<void> => {
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values ($1, $2, $3::text, $4, $3::text, $1::uuid::text, '{}')`,
    [id, organizationId, kind, kind === 'organization' ? null : organizationId],
  )
}

/** An organization with so many requested runs. */
const askFor = async (runs: number): Promise<string> => {
  const organizationId = newId()
  await newNode(organizationId, 'organization', organizationId)
  for (let count = 0; count < runs; count += 1) {
    const id = newId()
    await newNode(id, 'cluster', organizationId)
    const wanted = {
      runId: newId(),
      action: 'DEPLOY',
      status: 'DEPLOYING',
      document: {},
      mark: '',
      version: null,
    } as const
    await ask(database, id, { ...wanted, askedBy: 'a test' })
  }
  return organizationId
}

const claimed = async (): Promise<string[]> =>
  (await claimRuns(database, 'a server', 24)).map(({ organizationId }) => organizationId)

test('runs of others that take hours keep no organization from its first one', async () => {
  const [first, second] = [await askFor(3), await askFor(3)]
  assert.deepEqual((await claimed()).sort(), [first, first, second, second].sort())
  assert.deepEqual(await claimed(), [], 'none has more than two')
  const late = [await askFor(2), await askFor(2), await askFor(1)]
  assert.deepEqual((await claimed()).sort(), late.toSorted(), 'and no second one beside four others')
})
