/** The parts of the package ssh2 that we use; it has no types of its own. */
declare module 'ssh2' {
  import type { EventEmitter } from 'node:events'
  import type { Duplex } from 'node:stream'

  export interface Channel extends Duplex {
    close(): void
  }

  export interface ParsedKey {
    type: string
    isPrivateKey(): boolean
    getPublicSSH(): Buffer
    getPrivatePEM(): string
  }

  export interface ConnectOptions {
    sock: Duplex
    username: string
    privateKey: string
    authHandler: readonly 'publickey'[]
    readyTimeout: number
    keepaliveInterval: number
    keepaliveCountMax: number
    algorithms: { serverHostKey: readonly string[] }
    hostVerifier(key: Buffer): boolean
  }

  export class Client extends EventEmitter {
    connect(options: ConnectOptions): this
    openssh_forwardOutStreamLocal(path: string, done: (error: Error | undefined, channel: Channel) => void): this
    end(): this
    destroy(): this
  }

  const ssh2: {
    Client: typeof Client
    utils: {
      parseKey(text: string): ParsedKey | Error | (ParsedKey | Error)[]
      generateKeyPairSync(type: 'ed25519'): { private: string; public: string }
    }
  }
  export default ssh2
}
