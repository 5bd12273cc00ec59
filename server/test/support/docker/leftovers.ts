/** What an installation has on the engine, asked by the mark it puts on everything: after its end that is nothing. */
import { createEngine } from '../../../src/lib/docker/docker-engine.ts'
import { createLog } from '../../../src/lib/log.ts'
import { connect, type Database } from '../../../src/store/database.ts'
import { readOwnerId } from '../../../src/store/installation.ts'
import { startPostgres } from '../../../src/store/postgres/postgres.ts'

const log = createLog('silent')

/** Lets `work` look into the database of a data directory, whether a server runs there or not. */
export const withDatabase = async <T>(dataDir: string, work: (database: Database) => Promise<T>): Promise<T> => {
  const database = connect((await startPostgres({ dataDir, log })).connectionString, log)
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}

/** Null where nothing was ever begun. */
export const ownerOf = (dataDir: string): Promise<string | null> => withDatabase(dataDir, readOwnerId).catch(() => null)

/** Containers, networks and volumes of an owner, each by its kind and name. */
export const leftoversOf = async (ownerId: string): Promise<string[]> => {
  const engine = createEngine()
  const query = { all: true, filters: JSON.stringify({ label: [`slipway.owner=${ownerId}`] }) }
  try {
    const containers = await engine.call<{ Names: string[] }[]>('GET', '/containers/json', { query })
    const networks = await engine.call<{ Name: string }[]>('GET', '/networks', { query })
    const marks = { filters: JSON.stringify({ label: [`slipway.generation-of=${ownerId}`] }) }
    const { Volumes: marked } = await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes', {
      query: marks,
    })
    const { Volumes } = await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes', { query })
    return [
      ...containers.map(({ Names }) => `container ${Names[0]}`),
      ...networks.map(({ Name }) => `network ${Name}`),
      ...[...(Volumes ?? []), ...(marked ?? [])].map(({ Name }) => `volume ${Name}`),
    ]
  } finally {
    await engine.close()
  }
}
