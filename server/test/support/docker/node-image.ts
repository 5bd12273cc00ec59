/**
 * The image `slipway-test-node:1`: the Node that runs this test and the libraries it needs, on nothing. For test
 * applications that need more than busybox, where no image can be pulled.
 */
import { pack } from 'tar-stream'
import { isEngineError } from '../../../src/lib/docker/docker-engine.ts'
import { engine } from './docker.ts'
import { readNodeFiles } from './node-files.ts'

export const nodeImage = 'slipway-test-node:1'

const buildContext = async () => {
  const archive = pack()
  archive.entry({ name: 'Dockerfile' }, 'FROM scratch\nCOPY root /\nENTRYPOINT ["/bin/node"]\n')
  for (const [path, content] of await readNodeFiles()) archive.entry({ name: `root/${path}`, mode: 0o755 }, content)
  archive.finalize()
  return archive
}

/** Makes the image unless the engine has it. */
export const ensureNodeImage = async (): Promise<string> => {
  try {
    await engine.call('GET', `/images/${nodeImage}/json`)
  } catch (error) {
    if (!isEngineError(error, 404)) throw error
    const query = { t: nodeImage, version: 1, rm: true, forcerm: true }
    const output = await engine.stream('POST', '/build', { query, body: await buildContext(), deadlineMs: 120_000 })
    let text = ''
    for await (const chunk of output.setEncoding('utf8')) text += chunk
    if (text.includes('errorDetail')) throw new Error(text)
  }
  return nodeImage
}
