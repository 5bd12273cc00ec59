/** The least that starts a container and sees it answer: create, start, ask until 200. No router, no records. */
import { request } from 'undici'
import type { ContainerOptions, Engine } from './engine.ts'

/** Asks every millisecond until the answer is 200 and `accept` likes its body. */
export const untilServing = async (
  url: string,
  accept: (body: string) => boolean = () => true,
  headers: Record<string, string> = {},
  timeoutMs = 30_000,
): Promise<void> => {
  let last = 'no connection'
  for (const deadline = performance.now() + timeoutMs; performance.now() < deadline; ) {
    try {
      const answer = await request(url, { headers, reset: true, headersTimeout: 2000, bodyTimeout: 2000 })
      const body = await answer.body.text()
      if (answer.statusCode === 200 && accept(body)) return
      last = `${answer.statusCode} ${body.slice(0, 80)}`
    } catch (error) {
      last = (error as Error).message
    }
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
  throw new Error(`${url} did not serve within ${timeoutMs / 1000} s: ${last}`)
}

/** Starts one container of `image` and resolves when it has answered 200. */
export const rawDeploy = async (
  engine: Engine,
  image: string,
  options: Omit<ContainerOptions, 'image'> = {},
): Promise<string> => {
  const id = await engine.create({ image, ...options })
  await engine.start(id)
  await untilServing(`http://${await engine.address(id)}:8080/`)
  return id
}
