/** Reads streams of the API in tests: server-sent events and websockets, each as the list of what has come so far. */
import { WebSocket } from 'ws'
import type { Json } from './api.ts'
import { until } from './until.ts'

export interface Heard {
  /** What has come, decoded, oldest first. */
  all: Json[]
  /** Of events. */
  ids: string[]
  /** The close code of the websocket or of the event stream: 0 while open. */
  code: number
  close(): void
}

const take = (heard: Heard, block: string): void => {
  const of = (name: string) =>
    block
      .split('\n')
      .find((line) => line.startsWith(`${name}: `))
      ?.slice(name.length + 2)
  const data = of('data')
  if (data === undefined) return
  heard.all.push(JSON.parse(data))
  heard.ids.push(of('id') ?? '')
}

/** Events of an address; resolves when they have begun. */
export const hearEvents = async (
  url: string,
  token: string,
  headers: Record<string, string> = {},
): Promise<Heard & { status: number }> => {
  const ending = new AbortController()
  const answer = await fetch(url, { headers: { authorization: `Token ${token}`, ...headers }, signal: ending.signal })
  const heard: Heard & { status: number } = {
    all: [],
    ids: [],
    code: 0,
    status: answer.status,
    close: () => ending.abort(),
  }
  const read = async (): Promise<void> => {
    let text = ''
    for await (const part of answer.body!.pipeThrough(new TextDecoderStream())) {
      text += part
      const blocks = text.split('\n\n')
      text = blocks.pop()!
      for (const block of blocks) take(heard, block)
    }
  }
  read()
    .catch(() => {})
    .finally(() => {
      heard.code = 1000
    })
  return heard
}

/** A websocket as browsers open it: with the token among the subprotocols. Rejects when it is not let in. */
export const hearSocket = async (url: string, token: string): Promise<Heard & { socket: WebSocket }> => {
  const socket = new WebSocket(url.replace('http', 'ws'), ['v1', `auth.bearer.${token}`])
  const heard = { all: [] as Json[], ids: [], code: 0, close: () => socket.close(), socket }
  socket.on('message', (data) => heard.all.push(JSON.parse(String(data))))
  socket.on('close', (code) => {
    heard.code = code
  })
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  return heard
}

/** The last that has come, once it is as wanted. */
export const lastThat = (
  heard: Heard,
  what: string,
  wanted: (last: Json) => boolean,
  timeoutMs = 5000,
): Promise<Json> =>
  until(() => (heard.all.length > 0 && wanted(heard.all.at(-1)) ? heard.all.at(-1) : null), { what, timeoutMs })
