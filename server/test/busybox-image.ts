/**
 * The image `busybox:1` for tests on the real engine: pulled where a registry answers, else built from Debian's
 * busybox-static, so that tests run where no registry can be reached. Racing calls end with the same tag.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import Dockerode from 'dockerode'
import { pack } from 'tar-stream'

const tag = 'busybox:1'
const binary = '/bin/busybox'

const runProgram = (file: string, args: string[]): string => {
  const { status, stdout, stderr, error } = spawnSync(file, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${file} ${args[0]} failed: ${error?.message ?? stderr.trim()}`)
  return stdout
}

const installBusybox = (): void => {
  if (existsSync(binary)) return
  runProgram('apt-get', ['update'])
  runProgram('apt-get', ['install', '--yes', '--no-install-recommends', 'busybox-static'])
}

/** A root file system with every applet linked, and users root (0) and nobody (65534). */
const buildContext = (): NodeJS.ReadableStream => {
  const archive = pack()
  archive.entry(
    { name: 'Dockerfile' },
    'FROM scratch\nCOPY root /\nENV PATH=/bin:/sbin:/usr/bin:/usr/sbin\nCMD ["sh"]\n',
  )
  archive.entry({ name: 'root/bin/busybox', mode: 0o755 }, readFileSync(binary))
  for (const path of runProgram(binary, ['--list-full']).trim().split('\n'))
    if (path !== 'bin/busybox') archive.entry({ name: `root/${path}`, type: 'symlink', linkname: binary })
  archive.entry({ name: 'root/tmp', type: 'directory', mode: 0o1777 })
  archive.entry(
    { name: 'root/etc/passwd' },
    'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n',
  )
  archive.entry({ name: 'root/etc/group' }, 'root:x:0:\nnogroup:x:65534:\n')
  archive.finalize()
  return archive as unknown as NodeJS.ReadableStream
}

/** Reads a build's or a pull's answer to its end; rejects with the error it tells, or when `signal` aborts. */
const finish = (docker: Dockerode, stream: NodeJS.ReadableStream, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
    docker.modem.followProgress(stream, (error: Error | null, told: { error?: string }[]) => {
      const failure = error ?? told?.find((each) => each.error !== undefined)?.error
      if (failure) reject(failure instanceof Error ? failure : new Error(failure))
      else resolve()
    })
  })

const pull = async (docker: Dockerode): Promise<boolean> => {
  const signal = AbortSignal.timeout(10_000)
  try {
    await finish(docker, await docker.pull(tag, { abortSignal: signal }), signal)
    return true
  } catch {
    return false
  }
}

/** Makes sure that the engine of DOCKER_HOST (or the local socket) holds `busybox:1`, and returns that name. */
export const ensureBusybox = async (): Promise<string> => {
  const docker = new Dockerode()
  const there = await docker
    .getImage(tag)
    .inspect()
    .then(
      () => true,
      () => false,
    )
  if (there || (await pull(docker))) return tag
  installBusybox()
  await finish(docker, await docker.buildImage(buildContext(), { t: tag, forcerm: true }))
  return tag
}
