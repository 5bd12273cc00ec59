/** A certificate authority of the test's own, and what it signs, made by openssl. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../../src/lib/exec.ts'

export interface Certificate {
  cert: string
  key: string
}

export interface CertificateAuthority {
  /** PEM. */
  ca: string
  /** For a server at this address, `DNS:name` or `IP:address`; a client's without. */
  sign(name?: string, options?: { notAfter?: string }): Promise<Certificate>
  close(): void
}

const isInstalled = (process.env.PATH ?? '').split(':').some((folder) => existsSync(join(folder, 'openssl')))

export const opensslIsMissing: string | false = isInstalled ? false : 'openssl is not installed'

const openssl = async (...args: string[]): Promise<void> => {
  const { code, stderr } = await exec('openssl', args, { env: { PATH: process.env.PATH ?? '' } })
  if (code !== 0) throw new Error(`openssl ${args[0]}: ${stderr}`)
}

export const createAuthority = async (): Promise<CertificateAuthority> => {
  const folder = mkdtempSync(join(tmpdir(), 'authority-'))
  const path = (name: string) => join(folder, name)
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-noenc']
  await openssl(
    ...['req', '-x509', ...newKey, '-keyout', path('ca.key'), '-out', path('ca.pem')],
    ...['-days', '2', '-subj', '/CN=test authority'],
  )
  let count = 0
  return {
    ca: readFileSync(path('ca.pem'), 'utf8'),
    async sign(name, { notAfter } = {}) {
      count += 1
      const [key, request, cert, more] = ['key', 'csr', 'pem', 'ext'].map((end) => path(`${count}.${end}`))
      const use = name === undefined ? 'clientAuth' : 'serverAuth'
      writeFileSync(more!, `extendedKeyUsage=${use}\n${name === undefined ? '' : `subjectAltName=${name}\n`}`)
      await openssl('req', ...newKey, '-keyout', key!, '-out', request!, '-subj', '/CN=test')
      const signed = [
        'x509',
        '-req',
        '-in',
        request!,
        '-CA',
        path('ca.pem'),
        '-CAkey',
        path('ca.key'),
        '-CAcreateserial',
      ]
      const ends = notAfter === undefined ? ['-days', '1'] : ['-days', notAfter]
      await openssl(...signed, '-out', cert!, ...ends, '-extfile', more!)
      return { cert: readFileSync(cert!, 'utf8'), key: readFileSync(key!, 'utf8') }
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}
