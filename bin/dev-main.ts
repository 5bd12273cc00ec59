/**
 * The server of `npm run dev`, started again after each change (bin/dev.ts): loads packages, which do not change, and
 * its sources on the message `load`; says so, and serves on the message `Go`. Ends when its parent process has ended.
 */
import { on } from 'node:events'
import { open } from 'node:inspector'
import { enableCompileCache } from 'node:module'
import { fileURLToPath } from 'node:url'
import type { Go } from './dev-server.ts'

enableCompileCache(fileURLToPath(new URL('../node_modules/.cache/slipway', import.meta.url)))
process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
const messages = on(process, 'message')
const told = async (): Promise<unknown> => (await messages.next()).value?.[0]

await Promise.all([import('fastify'), import('@fastify/websocket'), import('pg'), import('pino'), import('undici')])
await Promise.all([import('jose'), import('prom-client'), import('tar-stream'), import('typebox'), import('ws')])
await told()
const [{ describeToken, print, serve }, { newLink }, { prepareSample }] = await Promise.all([
  import('../server/src/programs/serve.ts'),
  import('../server/src/programs/console-link.ts'),
  import('../server/src/programs/sample-start.ts'),
])
process.send!('loaded')
const { consoleUrl, inspectPort } = (await told()) as Go
if (inspectPort !== null) open(inspectPort, '127.0.0.1')

await serve(async (app) => {
  process.send!('ready')
  const sampleUrl = await prepareSample(app, print)
  if (consoleUrl === null) return
  const link = await newLink(app, consoleUrl)
  print(`Console        ${link ?? consoleUrl}${link === null ? '' : ' (signs in once, for 15 minutes)'}`)
  print(`API            ${app.url}`)
  print(`Admin token    ${describeToken(app.adminToken)}`)
  if (sampleUrl !== null) print(`Sample         ${sampleUrl}`)
  print(`Data           ${app.parts.settings.dataDir}`)
})
