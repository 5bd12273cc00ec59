/**
 * The image `slipway-test-node:1`: the Node that runs this test and the libraries it needs, on nothing. For test
 * applications that need more than busybox, where no image can be pulled.
 */
import { readFile, realpath } from 'node:fs/promises'
import { Readable } from 'node:stream'
import Dockerode from 'dockerode'
import { pack } from 'tar-stream'
import { exec } from '../src/lib/exec.ts'

export const nodeImage = 'slipway-test-node:1'

/** Paths of the shared libraries of a program, as its loader asks for them. */
const librariesOf = async (program: string): Promise<string[]> => {
  const { stdout } = await exec('ldd', [program], { env: { PATH: process.env.PATH ?? '' } })
  return [...stdout.matchAll(/(\/\S+)/g)].map((match) => match[1]!).filter((path) => path !== `${program}:`)
}

const buildContext = async () => {
  const archive = pack()
  const program = await realpath(process.execPath)
  archive.entry({ name: 'Dockerfile' }, 'FROM scratch\nCOPY root /\nENTRYPOINT ["/bin/node"]\n')
  archive.entry({ name: 'root/bin/node', mode: 0o755 }, await readFile(program))
  for (const library of await librariesOf(program))
    archive.entry({ name: `root${library}`, mode: 0o755 }, await readFile(library))
  archive.finalize()
  return archive
}

/** Makes the image unless the engine has it. */
export const ensureNodeImage = async (): Promise<string> => {
  const docker = new Dockerode()
  const found = await docker
    .getImage(nodeImage)
    .inspect()
    .catch(() => null)
  if (found !== null) return nodeImage
  const output = await docker.buildImage(Readable.from(await buildContext()), { t: nodeImage })
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(output, (error, lines) => {
      const failure = error ?? lines?.find((line: { error?: string }) => line.error !== undefined)
      if (failure) reject(new Error(JSON.stringify(failure)))
      else resolve()
    })
  })
  return nodeImage
}
