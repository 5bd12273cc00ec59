/** Exits with code 0 if the engine of DOCKER_HOST or the local socket answers a ping within two seconds. */
import { get } from 'node:http'

const address = new URL(process.env.DOCKER_HOST || 'unix:///var/run/docker.sock')
const isSecured = address.protocol === 'ssh:' || address.protocol === 'https:' || process.env.DOCKER_TLS_VERIFY

// An engine behind keys is left to the server, which has them.
if (isSecured) process.exit(0)

const place =
  address.protocol === 'unix:'
    ? { socketPath: decodeURIComponent(address.pathname) }
    : { host: address.hostname, port: address.port || 2375 }
get({ ...place, path: '/_ping', timeout: 2000 }, ({ statusCode }) => process.exit(statusCode === 200 ? 0 : 1))
  .on('timeout', () => process.exit(1))
  .on('error', () => process.exit(1))
