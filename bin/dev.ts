/**
 * `npm run dev`: a server from its sources and the console by Vite, both of which take up each change. Ctrl-C ends all of
 * it, the router and the database too. The server's own data and settings are those of `npm start`, in another folder.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startDevConsole } from '../console/dev.ts'
import { createLog } from '../server/src/lib/log.ts'
import { createRouter } from '../server/src/router/control/client.ts'
import { readSettings } from '../server/src/settings/settings.ts'
import { runDevServer } from './dev-server.ts'

const consolePort = 5173
const usualInspectPort = 9229

const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url))
const root = fileOf('..')
const sources = fileOf('../server/src')
const args = process.argv.slice(2)

const say = (line: string): void => {
  process.stdout.write(`${line}\n`)
}

const inspectPortIn = (all: readonly string[]): number | null => {
  const found = all.find((each) => each.startsWith('--inspect'))
  return found === undefined ? null : Number(found.split('=')[1] ?? usualInspectPort)
}

/** In a separate session: Ctrl-C reaches only us, and we end it. */
const startServer = (): ChildProcess => {
  const flags = args.filter((each) => each === '--fake')
  const child = spawn(process.execPath, [fileOf('dev-main.ts'), ...flags], {
    detached: true,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  return child.on('error', (error) => say(`The server: ${error.message}`))
}

const settings = readSettings()
const { dataDir, routerHost: host, routerPort: port } = settings

/** The router is a process that outlives servers. */
const isOfRouter = (path: string): boolean => /^server\/src\/(router|lib)\//.test(path)

const stopRouter = (): Promise<void> => createRouter({ dataDir, host, port, log: createLog('warn') }).stop()

/** Everything that servers leave running. */
const stopRest = async (): Promise<void> => {
  const child = spawn(process.execPath, [fileOf('../server/src/programs/stop.ts')], {
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  await once(child, 'exit')
}

const devConsole = await startDevConsole({
  api: `http://${settings.host}:${settings.port}`,
  port: consolePort,
  isReady: () => server.isReady(),
})
const server = runDevServer({
  start: startServer,
  go: { consoleUrl: devConsole.url, inspectPort: inspectPortIn(args) },
  between: async (changed) => {
    if (changed.some(isOfRouter)) await stopRouter()
  },
  say,
})

devConsole.watcher.add(sources)
devConsole.watcher.on('all', (_event, path) => {
  if (path.startsWith(`${sources}/`) && !path.endsWith('.test.ts')) server.changed(relative(root, path))
})

// Closing the terminal ends us too, and then it accepts no more lines.
process.stdout.on('error', () => {})

let isEnding = false
const endAll = async (): Promise<void> => {
  if (isEnding) return
  isEnding = true
  say('\nStopping the server, its router and its database ...')
  await Promise.all([server.stop(), devConsole.close()])
  await stopRest()
  process.exit(0)
}
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => void endAll())
