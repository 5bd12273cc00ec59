/** The database: its version, room, connections, old transactions and migrations. */
import { failed, type Problem, topic, warning } from '../lib/finding.ts'
import { type Migrations, type Queryable, readMigrations } from '../store/database.ts'

export interface DatabaseFacts {
  version: string
  bytes: number
  connections: number
  mostConnections: number
  oldestSeconds: number
  /** Transactions since the oldest rows were frozen. */
  age: number
  isReadOnly: boolean
  migrations: Migrations
}

const factsSql = `select current_setting('server_version') as version,
  pg_database_size(current_database())::float8 as bytes,
  (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
  current_setting('max_connections')::int as "mostConnections",
  coalesce((select extract(epoch from max(clock_timestamp() - xact_start)) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()), 0)::float8 as "oldestSeconds",
  (select age(datfrozenxid)::float8 from pg_database where datname = current_database()) as age,
  pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as "isReadOnly"`

export const readDatabase = async (db: Queryable): Promise<DatabaseFacts> => {
  const [row] = await db.query<Omit<DatabaseFacts, 'migrations'>>(factsSql)
  return { ...row!, migrations: await readMigrations(db) }
}

const database = topic('database', 'Database')

const nearShare = 0.8
const longSeconds = 600
/** PostgreSQL stops writing at two billion. */
const oldAge = 1_500_000_000

const connectionProblem = ({ connections, mostConnections }: DatabaseFacts): Problem | null =>
  connections > mostConnections * nearShare
    ? warning(
        `${connections} of ${mostConnections} connections to the database are in use.`,
        'Raise `max_connections`, or end programs that keep connections open (`select * from pg_stat_activity`).',
      )
    : null

const oldProblem = ({ oldestSeconds }: DatabaseFacts): Problem | null =>
  oldestSeconds > longSeconds
    ? warning(
        `A transaction has been open for ${Math.floor(oldestSeconds / 60)} minutes: until it ends, deleted rows keep their space.`,
        'Find it (`select pid, xact_start, query from pg_stat_activity order by xact_start`) and end its program, or `select pg_terminate_backend(pid)`.',
      )
    : null

const ageProblem = ({ age }: DatabaseFacts): Problem | null =>
  age > oldAge
    ? failed(
        'The database has not been vacuumed for so long that it will soon refuse to write.',
        'Run `vacuum (freeze)` as its superuser, and turn autovacuum on.',
      )
    : null

const migrationProblem = ({ migrations: { pending, unknown } }: DatabaseFacts): Problem | null => {
  if (unknown.length > 0)
    return failed(
      `A newer Slipway has migrated the database (${unknown.join(', ')}).`,
      'Start that version again: a migration cannot be undone.',
    )
  return pending.length > 0
    ? failed(`Migrations of the database are missing: ${pending.join(', ')}.`, 'Restart Slipway, which makes them.')
    : null
}

const readOnlyProblem = ({ isReadOnly }: DatabaseFacts): Problem | null =>
  isReadOnly
    ? failed('The database can only be read.', 'Let DATABASE_URL lead to the primary server, not to a replica.')
    : null

export const judgeDatabase = (facts: DatabaseFacts) => {
  const { version, bytes, connections, migrations } = facts
  const problems = [
    readOnlyProblem(facts),
    migrationProblem(facts),
    ageProblem(facts),
    connectionProblem(facts),
    oldProblem(facts),
  ]
  return database.judge(
    problems.filter((each) => each !== null),
    `PostgreSQL ${version.split(' ')[0]} with ${Math.ceil(bytes / 2 ** 20)} MB, ${connections} connections and all ${migrations.applied} migrations.`,
  )
}
