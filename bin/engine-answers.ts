/**
 * Exits with code 0 if the engine of DOCKER_HOST, in the environment or in slipway.env, or of the local socket answers
 * a ping within two seconds, or if there is to be none (SLIPWAY_DOCKER); else with 1, after printing the DOCKER_HOST,
 * if there is one.
 */
import { get } from 'node:http'
import { resolve } from 'node:path'
import { readSettingsFile } from '../server/src/settings/file.ts'
import { onOff } from '../server/src/settings/values.ts'

/** The server reports errors in the file. */
const inFile = (): Record<string, string> => {
  try {
    return readSettingsFile(resolve(process.env.SLIPWAY_DATA_DIR || '.slipway'))
  } catch {
    return {}
  }
}

const given = { ...inFile(), ...process.env }
const named = given.DOCKER_HOST || ''

const leave = (answers: boolean): never => {
  if (!answers && named !== '') process.stdout.write(named)
  return process.exit(answers ? 0 : 1)
}

const wanted = onOff((given.SLIPWAY_DOCKER ?? '').trim() || 'on')
// The server refuses any other value.
const isOff = typeof wanted === 'string' || !wanted.value

const address = URL.parse(named === '' ? 'unix:///var/run/docker.sock' : named)
const isSecured = address?.protocol === 'ssh:' || address?.protocol === 'https:' || given.DOCKER_TLS_VERIFY

// An engine that needs keys is left to the server, which has them, and so is an address that it refuses.
if (isOff || address === null || isSecured) leave(true)
else {
  const place =
    address.protocol === 'unix:'
      ? { socketPath: decodeURIComponent(address.pathname) }
      : { host: address.hostname, port: address.port || 2375 }
  get({ ...place, path: '/_ping', timeout: 2000 }, ({ statusCode }) => leave(statusCode === 200))
    .on('timeout', () => leave(false))
    .on('error', () => leave(false))
}
