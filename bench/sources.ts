/**
 * What the deployments are made from: a repository on a local git server, with a web site of one page in busybox's
 * httpd, and the image that the floors run. Every image of this repository carries the label `slipway.bench=1`.
 */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { exec } from '../server/src/lib/exec.ts'
import { busyboxImage, ensureBusybox } from '../server/test/support/docker/busybox-image.ts'
import { startGitServer } from '../server/test/support/peers/git-server.ts'
import type { Bench } from './bench.ts'

export interface Sources {
  /** HTTP address of the repository. */
  url: string
  /** Image of the site, ready to run on port 8080. */
  image: string
  /** Commits a version of the site whose page holds `text`; gives the commit's id. */
  publish(text: string): Promise<string>
  stop(): Promise<void>
}

const dockerfile = `FROM ${busyboxImage}
LABEL slipway.bench=1
COPY www /www
EXPOSE 8080
CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]
`

/** Starts, but never listens: for what must not become ready. */
const neverReady = `FROM ${busyboxImage}
LABEL slipway.bench=1
CMD ["sleep", "3600"]
`

/** Answers after 300 ms, whatever the method. */
const slow = `#!/bin/sh
sleep 0.3
printf 'Content-Type: text/plain\\r\\n\\r\\nslow\\n'
`

/** Shows which configuration answers. */
const round = `#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\nround %s.\\n' "$ROUND"
`

/** Prints the numbers from the first to the second on the container's output, so many at a time, ten times a second. */
const print = `#!/bin/sh
IFS=,
set -- $QUERY_STRING
n=$1
while [ $n -le $2 ]; do
  seq $n $((n + $3 - 1)) > /proc/1/fd/1
  n=$((n + $3))
  sleep 0.1
done
printf 'Content-Type: text/plain\\r\\n\\r\\nprinted\\n'
`

/**
 * The same in lines of ordinary length, the last of each tenth of a second on its error output. It looks at the clock,
 * in hundredths of a second, and catches up with what a busy machine held up. A dot each time says that it still works,
 * or the router would end it.
 */
const talk = `#!/bin/sh
IFS=,
set -- $QUERY_STRING
printf 'Content-Type: text/plain\\r\\n\\r\\n'
now() {
  IFS=' ' read -r seconds rest < /proc/uptime
  time=\${seconds%.*}\${seconds#*.}
}
now
due=$time
n=$1
while [ $n -le $2 ]; do
  seq $n $((n + $3 - 2)) | sed 's|$| GET /api/v1/orders/4711?expand=items 200 in 12 ms, for a customer of ordinary size|' > /proc/1/fd/1
  echo "$((n + $3 - 1)) GET /api/v1/orders/4712 500: the database did not answer within 2 s" > /proc/1/fd/2
  n=$((n + $3))
  due=$((due + 10))
  printf .
  now
  left=$((due - time))
  [ $left -ge 10 ] || left=0$left
  [ $time -ge $due ] || sleep 0.$left
done
printf 'printed\\n'
`

const page = 'www/index.html'

const files: Record<string, { text: string; mode: string }> = {
  Dockerfile: { text: dockerfile, mode: '100644' },
  'Dockerfile.never': { text: neverReady, mode: '100644' },
  'www/cgi-bin/slow': { text: slow, mode: '100755' },
  'www/cgi-bin/print': { text: print, mode: '100755' },
  'www/cgi-bin/talk': { text: talk, mode: '100755' },
  'www/cgi-bin/round': { text: round, mode: '100755' },
  [page]: { text: 'first\n', mode: '100644' },
}

/** Writes the files of the repository into a folder, for the build of the floors' image. */
const layOut = (folder: string): void => {
  for (const [path, { text, mode }] of Object.entries(files)) {
    const file = join(folder, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    chmodSync(file, Number.parseInt(mode.slice(-3), 8))
  }
}

const image = 'slipway-bench-site:1'

const buildImage = async (bench: Bench): Promise<void> => {
  const folder = join(bench.folder, 'site')
  layOut(folder)
  const { code, stderr } = await exec('docker', ['build', '--quiet', '--tag', image, folder], {
    env: { PATH: process.env.PATH ?? '/usr/bin:/bin', HOME: '/nonexistent', DOCKER_BUILDKIT: '0' },
    timeoutMs: 60_000,
  })
  if (code !== 0) throw new Error(`docker build: ${stderr.trim()}`)
}

export const startSources = async (bench: Bench): Promise<Sources> => {
  await ensureBusybox()
  await buildImage(bench)
  const server = await startGitServer()
  await server.createRepository('site')
  await server.commit('site', files, 'first')
  return {
    url: server.url('site'),
    image,
    publish: (text) => server.commit('site', { [page]: `${text}\n` }, `Say ${text}`),
    stop: server.close,
  }
}
