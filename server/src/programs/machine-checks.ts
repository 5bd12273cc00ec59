/**
 * What can be said of an installation whose server does not run, or does not answer: why it does not start, and the
 * checks of the doctor that need only the machine. Changes nothing, and starts nothing.
 */
import { lstatSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { judgeBackup } from '../doctor/backup.ts'
import { judgeDatabase, readDatabase } from '../doctor/database.ts'
import { judgeDisks, readDisks } from '../doctor/disks.ts'
import { placesOf } from '../doctor/doctor.ts'
import { type EngineFacts, judgeEngine, readEngine } from '../doctor/engine.ts'
import { judgeKernel, readKernel } from '../doctor/kernel.ts'
import { judgeMemory, readOwnMemory } from '../doctor/memory.ts'
import { judgeNames, readNames } from '../doctor/names.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { defaultConnection, defaultSocketPath } from '../lib/docker/engine-connection.ts'
import { type Finding, failed, type Problem, topic } from '../lib/finding.ts'
import { createLog } from '../lib/log.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import { systemClock } from '../lib/time/clock.ts'
import { askHealth } from '../router/control/control-client.ts'
import { pathsOf } from '../router/control/protocol.ts'
import type { Settings } from '../settings/settings.ts'
import { connect } from '../store/database.ts'
import { readMasterKeys } from '../store/keys/master-key.ts'
import { checkOwner, isFake } from '../wiring/data-directory.ts'
import { tryAddresses, tryRouterPorts } from '../wiring/listen-addresses.ts'

const mb = 2 ** 20

const sentence = (error: unknown): string => {
  const text = (error as Error).message.replace(/\.$/, '')
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

/** The problem that an attempt ends with; none if it succeeds. */
const problemOf = (work: Promise<unknown>, mending: string): Promise<Problem[]> =>
  work.then(
    () => [],
    (error: unknown) => [failed(sentence(error), mending)],
  )

const folderOf = topic('data-directory', 'Data directory')

const lookAtFolder = async ({ dataDir, masterKeyFile }: Settings): Promise<Finding> => {
  const problems = await problemOf(checkOwner(dataDir), 'Run Slipway always as the same user.')
  const isNew = problems.length === 0 && !(await checkOwner(dataDir))
  if (isNew) return folderOf.ok(`${dataDir} does not exist yet: the first start creates it.`)
  const keys = await problemOf(
    readMasterKeys(masterKeyFile).then((found) => {
      const isUsed = lstatSync(join(dataDir, 'postgres'), { throwIfNoEntry: false }) !== undefined
      if (found === null && isUsed)
        throw new Error(`there is a database, but not the file of its master keys, ${masterKeyFile}`)
    }),
    'Bring the file back from a backup, or set SLIPWAY_MASTER_KEY_FILE: without it the secrets in the database cannot be read.',
  )
  return folderOf.judge([...problems, ...keys], `${dataDir} belongs to this user and has its keys.`)
}

const portsOf = topic('ports', 'Ports')

const lookAtPorts = async (settings: Settings): Promise<Finding> => {
  const { controlSocket } = pathsOf(settings.dataDir)
  const runs = (await askHealth(controlSocket).catch(() => null)) !== null
  const advice = 'Find the program (`ss -ltnp`) and stop it, or change the setting.'
  const problems = [
    ...(await problemOf(tryAddresses(settings), advice)),
    ...(runs ? [] : await problemOf(tryRouterPorts(settings), advice)),
  ]
  return portsOf.judge(
    problems,
    `The ports of the API and the router are ${runs ? "free, or the router's own" : 'free'}.`,
  )
}

const databaseOf = topic('database', 'Database')
const databaseMs = 5000
const mostLog = 65_536

const lookAtExternal = async (databaseUrl: string): Promise<Finding> => {
  const database = connect(databaseUrl, createLog('silent'), { max: 1 })
  try {
    await database.ping(databaseMs)
    return judgeDatabase(await readDatabase(database))
  } catch (error) {
    return databaseOf.judge(
      [
        failed(
          'The database of DATABASE_URL does not answer, or refuses us.',
          `Check the address, its password and its log (${(error as { code?: string }).code ?? 'no answer'}).`,
        ),
      ],
      '',
    )
  } finally {
    await database.close().catch(() => {})
  }
}

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

const textOf = (path: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** The last message that says why the embedded database ended. */
export const fatalIn = (log: string): string | null => {
  const lines = log.slice(-mostLog).trimEnd().split('\n')
  const last = lines.findLastIndex((line) => /\b(?:FATAL|PANIC):/.test(line))
  const isOver = lines.slice(last + 1).some((line) => line.includes('is ready to accept connections'))
  if (last < 0 || isOver) return null
  return lines[last]!.replace(/^.*?\b((?:FATAL|PANIC):)\s*/, '$1 ').slice(0, 300)
}

/** It is not started: that is what a start does. */
const lookAtEmbedded = ({ dataDir }: Settings): Finding => {
  const home = join(dataDir, 'postgres')
  const pid = Number.parseInt(textOf(join(home, 'data', 'postmaster.pid')), 10)
  if (Number.isInteger(pid) && isAlive(pid)) return databaseOf.ok(`The embedded database runs (process ${pid}).`)
  const fatal = fatalIn(textOf(join(home, 'postgres.log')))
  if (fatal === null) return databaseOf.skipped('The embedded database does not run; the server starts it.')
  return databaseOf.judge(
    [
      failed(
        `The embedded database ended with: ${fatal}`,
        `Its log is ${join(home, 'postgres.log')}; docs/guides/install.md has the usual causes.`,
      ),
    ],
    '',
  )
}

const readEngineOf = async ({ docker, dockerHost, dataDir }: Settings): Promise<EngineFacts> => {
  const address = dockerHost ?? defaultSocketPath
  const fake = await isFake(dataDir).catch(() => null)
  if (fake === true || !docker) return { kind: fake === true ? 'fake' : 'none', info: null, address }
  const engine = createEngine(defaultConnection(dockerHost))
  try {
    return { kind: 'docker', info: await readEngine(engine), address }
  } finally {
    await engine.close()
  }
}

/** The folder itself, or the one in which it would be created. */
const existing = (path: string): string =>
  path === dirname(path) || lstatSync(path, { throwIfNoEntry: false }) !== undefined ? path : existing(dirname(path))

/** `canStart`: no server of this data directory runs. */
export const lookAtMachine = async (settings: Settings, { canStart }: { canStart: boolean }): Promise<Finding[]> => {
  const { databaseUrl, diskReserveMb, portRange, outboundAllow } = settings
  const engine = await readEngineOf(settings)
  const { addressesOf } = createOutbound({ allow: [...outboundAllow] })
  const isLocal = engine.info !== null && defaultConnection(settings.dockerHost).kind === 'local'
  const dataDir = existing(settings.dataDir)
  const places = placesOf({ dataDir, databaseUrl }, isLocal ? engine.info?.DockerRootDir : undefined)
  return Promise.all([
    lookAtFolder(settings),
    ...(canStart ? [lookAtPorts(settings)] : []),
    judgeEngine(engine),
    readDisks(places).then((disks) => judgeDisks(disks, diskReserveMb * mb)),
    readOwnMemory().then((own) => judgeMemory({ machines: [], own })),
    databaseUrl === undefined ? lookAtEmbedded(settings) : lookAtExternal(databaseUrl),
    readNames({ database: null, addressesOf, clock: systemClock }, settings).then(judgeNames),
    readKernel().then((kernel) => judgeKernel(kernel, portRange)),
    judgeBackup({ to: settings.ownBackups.to, last: undefined }, systemClock.now()),
  ])
}
