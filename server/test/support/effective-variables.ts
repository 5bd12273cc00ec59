import type { Queryable } from '../../src/store/database.ts'
import type { Sealer } from '../../src/store/keys/seal.ts'
import { type LoadedVariables, loadAllVariables } from '../../src/variables/rows.ts'

/** The environment of one service as a deployment would use it now. */
export const loadEffectiveVariables = async (
  db: Queryable,
  sealer: Sealer,
  serviceId: string,
): Promise<LoadedVariables> => (await loadAllVariables(db, sealer, [serviceId])).get(serviceId)!
