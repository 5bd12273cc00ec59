/** Images that a test needs on the engine: busybox and some programs. */
import assert from 'node:assert/strict'
import { pack } from 'tar-stream'
import { busyboxImage } from './busybox-image.ts'
import { engine } from './docker.ts'

/** Builds an image of busybox and these files in its folder of programs. */
export const buildImage = async (tag: string, programs: Record<string, string>, command: string): Promise<void> => {
  const archive = pack()
  archive.entry(
    { name: 'Dockerfile' },
    `FROM ${busyboxImage}\nCOPY programs /usr/local/bin\nENV PATH=/usr/local/bin:/bin\n${command}\n`,
  )
  for (const [name, text] of Object.entries({ nothing: '', ...programs }))
    archive.entry({ name: `programs/${name}`, mode: 0o755 }, text)
  archive.finalize()
  const query = { t: tag, rm: true, forcerm: true }
  const output = await engine.stream('POST', '/build', { query, body: archive, deadlineMs: 60_000 })
  let text = ''
  for await (const chunk of output) text += chunk
  assert.ok(!text.includes('errorDetail'), text)
}
