/** A socket before the engine's own, to be named as DOCKER_HOST: it can be away, slow, or silent. */
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectEngine } from '../support/docker/docker.ts'

/** `away`: connections break. `slow`: what is asked arrives late. `silent`: connections are taken and nothing answers. */
export type Trouble = 'none' | 'away' | 'slow' | 'silent'

export interface EngineProxy {
  dockerHost: string
  /** From now on, for connections that stand too. */
  set(trouble: Trouble): void
  close(): Promise<void>
}

export const startEngineProxy = async (latencyMs: number): Promise<EngineProxy> => {
  const folder = await mkdtemp(join(tmpdir(), 'slipway-engine-'))
  const path = join(folder, 'engine.sock')
  const sockets = new Set<Socket>()
  let trouble: Trouble = 'none'
  const keep = (socket: Socket): Socket => {
    sockets.add(socket)
    return socket.on('error', () => {}).on('close', () => sockets.delete(socket))
  }
  const carry = (client: Socket, engine: Socket): void => {
    const late: NodeJS.Timeout[] = []
    client.on('data', (data) => {
      if (trouble === 'silent') return
      if (trouble === 'slow') late.push(setTimeout(() => engine.write(data), latencyMs))
      else engine.write(data)
    })
    engine.on('data', (data) => {
      if (trouble !== 'silent') client.write(data)
    })
    client.on('close', () => {
      for (const timer of late) clearTimeout(timer)
      engine.destroy()
    })
    engine.on('close', () => client.destroy())
  }
  const server = createServer((client) => {
    keep(client)
    if (trouble === 'away') client.destroy()
    else carry(client, keep(connectEngine()))
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  const cut = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    dockerHost: `unix://${path}`,
    set(next) {
      // What was swallowed cannot be answered any more.
      if (next === 'away' || trouble === 'silent') cut()
      trouble = next
    },
    async close() {
      cut()
      await new Promise((resolve) => server.close(resolve))
      await rm(folder, { recursive: true, force: true })
    },
  }
}
