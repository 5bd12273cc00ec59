/** Engines of other machines that are all there, each another one, and run nothing real. */
import ssh2 from 'ssh2'
import type { Engines } from '../../../src/clusters/engines.ts'
import { noBuilder } from '../../../src/clusters/no-runtime.ts'
import { newId } from '../../../src/lib/ids.ts'
import { createFakeRuntime } from '../../../src/runtimes/fake/fake.ts'

export const createFakeEngines = (): Engines => ({
  identify: async () => ({ id: newId(), version: '28.0', apiVersion: '1.48', os: 'linux', architecture: 'amd64' }),
  ownId: async () => null,
  pin: async (address) => ({ address }),
  sockets: [],
  open: () => ({ runtime: createFakeRuntime({ ownerId: newId() }), builder: noBuilder, clear: async () => {} }),
})

// Signed by itself until 2126, and of no use but in tests.
const certificate = `-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIUKUg4oAK8kIMi0MwUp/GKM4fdVpwwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMc2xpcHdheSB0ZXN0MCAXDTI2MTEyMjEyNDg0OFoYDzIxMjYx
MDI5MTI0ODQ4WjAXMRUwEwYDVQQDDAxzbGlwd2F5IHRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAARWDGdxMg8+Ir7xSDnFrszJybz/x/SVoozVqBQiLTlaRKRO
qiCGbibqArmg4uyIla4vf4qDmL7lNhKsOPXHupjlo1MwUTAdBgNVHQ4EFgQUznwy
ap+fjTrUE7f2TYnqwb7nox8wHwYDVR0jBBgwFoAUznwyap+fjTrUE7f2TYnqwb7n
ox8wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEA8n1hlqXBgBQj
VkxCb+1e6se6r5k3gvNcU2aZAHUIA7ECIBRjsgD+WuJZfUVzPKrXLhC8QNY0VT/D
HvW3WgiYdqlM
-----END CERTIFICATE-----
`
const certificateKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRas1+7R0HXI3bCQL
LQYb0df+cBcjW/VF9OuzHAB8HL2hRANCAARWDGdxMg8+Ir7xSDnFrszJybz/x/SV
oozVqBQiLTlaRKROqiCGbibqArmg4uyIla4vf4qDmL7lNhKsOPXHupjl
-----END PRIVATE KEY-----
`

const sshKey = ssh2.utils.generateKeyPairSync('ed25519')

/** Credentials of an engine with a text in one of their secrets, before the key, as people keep notes there. */
export const engineWith = (field: string, text: string): object =>
  field === 'engine_client_key'
    ? {
        engine_url: 'tcp://engine.example:2376',
        engine_ca_certificate: certificate,
        engine_client_certificate: certificate,
        engine_client_key: `${text}\n${certificateKey}`,
      }
    : {
        engine_url: 'ssh://deploy@engine.example',
        engine_ssh_host_keys: sshKey.public,
        engine_ssh_key: `${text}\n${sshKey.private}`,
      }
