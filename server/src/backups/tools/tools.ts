/**
 * How each type of database is dumped, loaded and looked into, by the programs of its own image: as files and
 * environment of one container. Pure. The scripts beside this file write the dump to standard output and report rows on
 * standard error (reports.ts).
 */
import { readFile } from 'node:fs/promises'
import { DeploymentError } from '../../lib/errors.ts'

/**
 * `load-into-empty` refuses a server that has tables; `load` replaces all that is there; `check` loads into a server of
 * its own, in the same container.
 */
export type ToolMode = 'dump' | 'load' | 'load-into-empty' | 'check'

/** How a client signs in. */
export interface Login {
  host: string
  user: string
  password: string
}

interface BackupTool {
  script: URL
  /** The ending of a downloaded file. */
  fileEnding: string
  /** Whom the service's own credentials name. */
  user: string
  environment(login: Login): Record<string, string>
  /** For the image's own server, which `check` starts. */
  serverEnvironment(password: string): Record<string, string>
  /** MB of memory that a load needs beside what the server is given. */
  memoryMb: number
  /** Rows are counted in the dump's own snapshot; else before and after it. */
  isExact: boolean
}

const backupTools: Readonly<Record<string, BackupTool>> = {
  POSTGRESQL: {
    script: new URL('./postgresql.sh', import.meta.url),
    fileEnding: 'sql',
    user: 'postgres',
    serverEnvironment: (password) => ({ POSTGRES_PASSWORD: password }),
    environment: ({ host, user, password }) => ({ PGHOST: host, PGUSER: user, PGPASSWORD: password }),
    memoryMb: 256,
    isExact: true,
  },
  MYSQL: {
    script: new URL('./mysql.sh', import.meta.url),
    fileEnding: 'sql',
    user: 'root',
    serverEnvironment: (password) => ({ MYSQL_ROOT_PASSWORD: password }),
    environment: ({ host, user, password }) => ({ BACKUP_HOST: host, BACKUP_USER: user, BACKUP_PASSWORD: password }),
    memoryMb: 256,
    isExact: false,
  },
  REDIS: {
    script: new URL('./redis.sh', import.meta.url),
    fileEnding: 'rdb',
    user: 'default',
    serverEnvironment: () => ({}),
    environment: ({ host, password }) => ({ BACKUP_HOST: host, REDISCLI_AUTH: password }),
    memoryMb: 128,
    isExact: false,
  },
}

/** Throws a sentence for users for a type that cannot be backed up. */
export const backupToolOf = (type: string): BackupTool => {
  const tool = backupTools[type]
  if (tool === undefined)
    throw new DeploymentError(
      'backup_unsupported',
      `Backups of databases of the type ${type} are not possible yet: ${Object.keys(backupTools).join(', ')} are.`,
    )
  return tool
}

export const isBackedUp = (type: string): boolean => backupTools[type] !== undefined

/** The program of one container. */
export const programOf = async (
  tool: BackupTool,
  mode: ToolMode,
): Promise<{ entrypoint: string[]; arguments: [] }> => ({
  entrypoint: ['sh', '-c', await readFile(tool.script, 'utf8'), 'slipway-backup', mode],
  arguments: [],
})
