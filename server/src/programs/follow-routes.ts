/**
 * Keeps the router of this data directory up to date while its server is away, where several servers share a database:
 * requests may come to this router, and services are deployed by the other servers. Started by the server, whose end it
 * hears by the end of their channel. Ends with the router, or when the next server has started another one.
 */
import { once } from 'node:events'
import { openCall } from '../router/control/control-client.ts'
import { pathsOf } from '../router/control/protocol.ts'
import { readSettings } from '../settings.ts'

const leaveMs = 5000
const againMs = 1000

const settings = readSettings()
const serverLeft = once(process, 'disconnect')
const call = await openCall(pathsOf(settings.dataDir).controlSocket, 'GET', '/follow')
const calledOff = once(call.resume(), 'close').then(() => 'called off' as const)
process.send?.('ready')

if ((await Promise.race([serverLeft, calledOff])) === 'called off') process.exit(0)

// Only now: while the server runs, this process is to be small.
const { follow } = await import('../follow.ts')
const following = follow(settings, againMs)
await calledOff
setTimeout(() => process.exit(0), leaveMs).unref()
await following.stop()
process.exit(0)
