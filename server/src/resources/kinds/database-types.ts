/** The types of databases: their versions, images, ports, logins, and how they are started. Pure data. */

interface DatabaseType {
  /** Supported versions, oldest first; `16` means its newest release. */
  versions: readonly string[]
  image: string
  port: number
  /** MB of memory that an idle server needs. */
  memory: number
  login: string
  database: string
  scheme: string
  dataPath: string
  /** Checks that the server answers where clients connect, and not only during its own setup. */
  probe: readonly string[]
  environment(password: string): Record<string, string>
  entrypoint?: readonly string[]
  /** Its public image runs as root at first; these are for where that is not allowed. */
  withoutRoot: { user: number; env?: Readonly<Record<string, string>> }
}

const local = '127.0.0.1'

/** The non-root user of all of these images. */
const user = 999

// The configuration is passed on standard input: every process on the machine can read a command line.
const redisStart = `exec docker-entrypoint.sh redis-server - <<END
requirepass $REDISCLI_AUTH
appendonly yes
dir /data
END`

export const databaseTypes: Record<string, DatabaseType> = {
  POSTGRESQL: {
    port: 5432,
    login: 'postgres',
    database: 'postgres',
    versions: ['12', '13', '14', '15', '16', '17'],
    image: 'library/postgres',
    memory: 256,
    scheme: 'postgresql',
    dataPath: '/var/lib/postgresql/data',
    // The folder of its files must be its own and empty at first; the top of a volume is neither.
    withoutRoot: { user, env: { PGDATA: '/var/lib/postgresql/data/pgdata' } },
    probe: ['pg_isready', '-h', local, '-U', 'postgres'],
    environment: (password) => ({ POSTGRES_USER: 'postgres', POSTGRES_PASSWORD: password, POSTGRES_DB: 'postgres' }),
  },
  MYSQL: {
    port: 3306,
    login: 'root',
    database: 'main',
    versions: ['5.7', '8', '8.0', '8.4', '9'],
    image: 'library/mysql',
    memory: 512,
    scheme: 'mysql',
    dataPath: '/var/lib/mysql',
    withoutRoot: { user },
    probe: ['mysqladmin', 'ping', '--silent', '-h', local],
    environment: (password) => ({ MYSQL_ROOT_PASSWORD: password, MYSQL_DATABASE: 'main' }),
  },
  MONGODB: {
    port: 27_017,
    login: 'root',
    database: 'admin',
    versions: ['5', '5.0', '6', '6.0', '7', '7.0', '8', '8.0'],
    image: 'library/mongo',
    memory: 512,
    scheme: 'mongodb',
    dataPath: '/data/db',
    withoutRoot: { user },
    probe: ['mongosh', '--quiet', '--host', local, '--eval', 'db.adminCommand({ ping: 1 })'],
    environment: (password) => ({ MONGO_INITDB_ROOT_USERNAME: 'root', MONGO_INITDB_ROOT_PASSWORD: password }),
  },
  REDIS: {
    port: 6379,
    login: 'default',
    database: '0',
    versions: ['6', '6.0', '6.2', '7', '7.0', '7.2', '7.4', '8'],
    image: 'library/redis',
    memory: 128,
    scheme: 'redis',
    dataPath: '/data',
    withoutRoot: { user },
    probe: ['redis-cli', '-h', local, 'ping'],
    // The client in the image reads it too, so that the probe can log in.
    environment: (password) => ({ REDISCLI_AUTH: password }),
    entrypoint: ['sh', '-c', redisStart],
  },
}

export const databaseTypeNames = Object.keys(databaseTypes)

const partsOf = (version: string): number[] => version.split('.').map(Number)

/** Negative if `a` is older; parts that only one of them has are ignored: `16` is not older than `16.4`. */
const compare = (a: string, b: string): number => {
  const other = partsOf(b)
  const shared = partsOf(a).slice(0, other.length)
  return shared.map((part, index) => part - other[index]!).find((difference) => difference !== 0) ?? 0
}

export const isOlder = (version: string, than: string): boolean => compare(version, than) < 0

/** Whether a version is one of those of its type, or a release of one. */
export const isEligible = (type: string, version: string): boolean =>
  databaseTypes[type]!.versions.some((each) => version === each || version.startsWith(`${each}.`))

/** Why a database cannot move from one version to another with its data; null if it can. */
export const upgradeRefusal = (from: string, to: string): string | null => {
  if (partsOf(from)[0] !== partsOf(to)[0])
    return 'cannot change to another major version, which cannot read the existing files: create a new database and copy the data'
  return compare(to, from) < 0 ? 'must not be older than the current version, which may have changed the files' : null
}

export const nextVersions = (type: string, present: string): string[] => {
  const next = databaseTypes[type]!.versions.filter((each) => upgradeRefusal(present, each) === null)
  return [...new Set([present, ...next])]
}
