/**
 * versitygw, an S3 storage over a folder that checks signatures, hashes and parts as S3 does. It is a Go program that CI
 * does not build: `go install github.com/versity/versitygw/cmd/versitygw@v1.8.0` into the folder below, or any other one
 * that SLIPWAY_TEST_S3 names by the path of the program.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { Secret } from '../../../src/lib/secret.ts'
import { until } from '../until.ts'

const program = process.env.SLIPWAY_TEST_S3 ?? join(homedir(), '.cache/slipway-test/versitygw-v1.8.0')

/** The path of the program, or null if it is not installed. */
export const realS3 = existsSync(program) ? program : null

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

export const startRealS3 = async () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-real-s3-'))
  mkdirSync(join(folder, 'data/backups'), { recursive: true })
  const port = await freePort()
  const keys = { accessKeyId: 'AKREAL', secretAccessKey: 'hush/hush+hush' }
  const env = { ...process.env, ROOT_ACCESS_KEY: keys.accessKeyId, ROOT_SECRET_KEY: keys.secretAccessKey }
  const args = ['--port', `127.0.0.1:${port}`, '--region', 'eu-central-1', 'posix', '--sidecar', join(folder, 'meta')]
  mkdirSync(join(folder, 'meta'))
  const child = spawn(realS3!, [...args, join(folder, 'data')], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk) => {
    said += chunk
  })
  const url = `http://127.0.0.1:${port}`
  await until(
    async () => {
      if (child.exitCode !== null) throw new Error(`versitygw ended: ${said}`)
      return fetch(url).then(
        () => true,
        () => false,
      )
    },
    { what: 'versitygw to answer', timeoutMs: 20_000 },
  )
  return {
    settings: {
      endpoint: url,
      region: 'eu-central-1',
      bucket: 'backups',
      prefix: 'below/',
      accessKeyId: keys.accessKeyId,
      secretAccessKey: new Secret(keys.secretAccessKey),
      isPathStyle: true,
    },
    async stop() {
      child.kill()
      if (child.exitCode === null) await once(child, 'exit')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
