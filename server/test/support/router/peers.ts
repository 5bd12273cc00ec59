/** Other proxies in front of the same program, to compare ours with: nginx and HAProxy, where they are installed. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../until.ts'

export interface Peer {
  port: number
  pid: number
  stop(): Promise<void>
}

interface Wanted {
  /** A free one. */
  port: number
  target: number
  /** How long a client or the target may be silent. */
  silenceMs: number
  /** As our router is: kernels share the processors out among sessions, and then among the processes of each. */
  inOwnSession?: boolean
}

const programs = { nginx: '/usr/sbin/nginx', haproxy: '/usr/sbin/haproxy' }
export type PeerName = keyof typeof programs

export const isInstalled = (name: PeerName): boolean => existsSync(programs[name])

/** One process on one core, each with connections to the target that are used again. */
const settings: Record<PeerName, (wanted: Wanted, folder: string) => string> = {
  nginx: ({ port, target, silenceMs }, folder) => `
daemon off; master_process off; pid ${folder}/pid; error_log /dev/null;
events { worker_connections 4096; }
http {
  access_log off; server_tokens off; keepalive_requests 1000000;
  client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
  client_header_timeout ${silenceMs}ms; client_body_timeout ${silenceMs}ms; keepalive_timeout ${silenceMs}ms;
  lingering_close off;
  upstream program { server 127.0.0.1:${target}; keepalive 64; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:${port} reuseport;
    location / {
      proxy_pass http://program; proxy_read_timeout ${silenceMs}ms; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $http_host;
    }
  }
}
`,
  haproxy: ({ port, target, silenceMs }) => `
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client ${silenceMs}ms
  timeout server ${silenceMs}ms
  timeout http-request ${silenceMs}ms
  timeout http-keep-alive ${silenceMs}ms
frontend front
  bind 127.0.0.1:${port}
  http-request set-header X-Forwarded-For %[src]
  http-request set-header X-Forwarded-Proto http
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  default_backend program
backend program
  http-reuse always
  server program 127.0.0.1:${target}
`,
}

const answers = async (port: number): Promise<boolean> => {
  const socket = connect(port, '127.0.0.1')
  return once(socket, 'connect')
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy())
}

const argumentsOf: Record<PeerName, (file: string) => string[]> = {
  nginx: (file) => ['-c', file, '-e', '/dev/null'],
  haproxy: (file) => ['-db', '-q', '-f', file],
}

export const startPeer = async (name: PeerName, wanted: Wanted): Promise<Peer> => {
  const folder = mkdtempSync(join(tmpdir(), `slipway-${name}-`))
  const file = join(folder, 'settings')
  writeFileSync(file, settings[name](wanted, folder))
  const child: ChildProcess = spawn(programs[name], argumentsOf[name](file), {
    stdio: ['ignore', 'ignore', 'inherit'],
    detached: wanted.inOwnSession ?? false,
  })
  const ended = once(child, 'exit')
  await until(async () => child.exitCode !== null || (await answers(wanted.port)), { what: `${name} to answer` })
  if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}`)
  return {
    port: wanted.port,
    pid: child.pid!,
    async stop() {
      child.kill('SIGKILL')
      await ended
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
