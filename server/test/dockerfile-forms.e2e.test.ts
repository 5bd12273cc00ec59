/**
 * What Dockerfiles say that an engine's own parser may not know: downloads, modes in symbols, newer options and
 * operators. The engine of the tests is an old one (20.10).
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { pack } from 'tar-stream'
import type { ImageConfig } from '../src/builds/engine/image-config.ts'
import { newId } from '../src/lib/ids.ts'
import { type BuildScene, openBuildScene } from './support/docker/build-scene.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'

const organizationId = newId()
let scene: BuildScene
let origin: string
let server: Server
/** Requests by path. */
const asked = new Map<string, number>()
const answers = new Map<string, (request: IncomingMessage, response: ServerResponse) => void>()

before(async () => {
  server = createServer((request, response) => {
    const path = request.url!
    asked.set(path, (asked.get(path) ?? 0) + 1)
    const answer = answers.get(path)
    if (answer === undefined) response.writeHead(404).end()
    else answer(request, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  scene = await openBuildScene({ downloadBytes: 2 ** 20 })
})

after(async () => {
  await scene?.close()
  server.close()
  await engine.close()
})

const configOf = async (image: string): Promise<ImageConfig> =>
  (await engine.call<{ Config: ImageConfig }>('GET', `/images/${image}/json`)).Config

const tarOf = async (name: string, text: string): Promise<Buffer> => {
  const archive = pack()
  archive.entry({ name, mode: 0o755 }, text)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

const modified = 'Wed, 21 Oct 2015 07:28:00 GMT'

test('ADD downloads through redirects, keeps name, mode and time, unpacks nothing, and downloads changed files again', async () => {
  const archive = await tarOf('inner', 'text')
  let etag = '"one"'
  let content = 'first'
  answers.set('/to', (_, response) => void response.writeHead(302, { location: '/there/tool%20%5B1%5D' }).end())
  answers.set('/there/tool%20%5B1%5D', (_, response) => {
    response.writeHead(200, { 'last-modified': modified, etag }).end(content)
  })
  answers.set('/v1.2/app.tar', (_, response) => void response.end(archive))
  answers.set('/plain', (_, response) => void response.end('plain'))
  const sum = createHash('sha256').update('plain').digest('hex')
  const Dockerfile = (more = '') => `FROM ${busyboxImage}
ARG V=1.2
WORKDIR /w
ADD ${origin}/to .
ADD --chown=7:8 --chmod=u+x,go=r "${origin}/there/tool%20%5B1%5D" $V/tool
ADD f ${origin}/v\${V}/app.tar ./both/
ADD --unpack=true ${origin}/v1.2/app.tar /unpacked
ADD --checksum=sha256:${sum} ${origin}/plain /plain
RUN stat -c '%n %a %u:%g %Y' to 1.2/tool both/* /plain && cat to && ls /unpacked && cat /plain && echo # ${more}
`
  const files = (more = '') => ({ Dockerfile: Dockerfile(more), f: 'f' })
  const { log } = await scene.buildFiles(files(), { organizationId })
  const seconds = Date.parse(modified) / 1000
  assert.match(
    log,
    new RegExp(
      `^to 600 0:0 ${seconds}\n1.2/tool 744 7:8 ${seconds}\nboth/app.tar 600 0:0 0\nboth/f 644 0:0 \\d+\n/plain 600 0:0 0\nfirstinner\nplain\n`,
      'm',
    ),
  )
  // What the server still calls the same is not read again, what has a checksum is not even asked for.
  const plainAsked = asked.get('/plain')
  const again = await scene.buildFiles(files('again'), { organizationId })
  assert.equal(asked.get('/plain'), plainAsked)
  assert.doesNotMatch(again.log, /Step 4[^\n]*\nDownloaded/)
  etag = '"two"'
  content = 'second'
  assert.match((await scene.buildFiles(files('more'), { organizationId })).log, /^secondinner\n/m)
})

test('a download that cannot be made fails the build with the reason', async () => {
  answers.set('/plain', (_, response) => void response.end('plain'))
  answers.set('/large', (_, response) => void response.end(Buffer.alloc(2 ** 20 + 1)))
  answers.set('/short', (_, response) => {
    response.writeHead(200, { 'content-length': '100' })
    response.write('x', () => response.destroy())
  })
  answers.set('/loop', (_, response) => void response.writeHead(301, { location: '/loop' }).end())
  answers.set('/inside', (_, response) => void response.writeHead(302, { location: 'http://169.254.169.254/x' }).end())
  const refused = async (line: string, code = 'build_failed') =>
    (await scene.refused({ Dockerfile: `FROM ${busyboxImage}\n\n${line}\n` }, { organizationId }, code)).message
  assert.match(
    await refused(`ADD ${origin}/none?token=hidden /x`),
    /ADD http:\/\/127\.0\.0\.1:\d+\/none: the server answered with status 404\.$/,
  )
  assert.match(await refused(`ADD ${origin}/large /x`), /it has more than 1 MB \(SLIPWAY_CONTEXT_MAX_MB\)/)
  assert.match(
    await refused(`ADD ${origin}/short /x`),
    /\/short: the connection was closed before the answer was complete/,
  )
  assert.match(await refused(`ADD ${origin}/loop /x`), /redirects more than 10 times/)
  assert.match(
    await refused(`ADD ${origin}/inside /x`, 'build_refused'),
    /169\.254\.169\.254\/x: this address cannot be used/,
  )
  assert.match(
    await refused(`ADD --checksum=sha256:${'0'.repeat(64)} ${origin}/plain /x`),
    /--checksum asks for sha256:0{64}/,
  )
  assert.match(
    await refused(`ARG U=git@h:a/b.git\nADD $U /x`, 'build_refused'),
    /line 4: ADD git@h:a\/b\.git is the address of a git repository/,
  )
  const named = `FROM ${busyboxImage}\nARG TOKEN\nADD ${origin}/$TOKEN/x /x\nRUN --mount=type=secret,id=TOKEN true\n`
  const asked = { organizationId, env: { TOKEN: 'canary-in-an-address' } }
  const { message } = await scene.refused({ Dockerfile: named }, asked, 'build_failed')
  assert.match(message, /\/\*\*\*\/x: the server answered with status 404/)
  assert.match(
    await refused(`ADD a ${origin}/plain /x`),
    /line 3: ADD with more than one source needs a destination that ends with/,
  )
})

test('what the parser of an old engine does not know is carried out, and the rest is said in the log', async () => {
  const Dockerfile = `# a comment
FROM ${busyboxImage}
ARG PLATFORM=linux/arm64 NAME=lib-1.0+build@2,a MESSAGE JAR=out/app.jar
ENV ARCH=\${PLATFORM#linux/} DASHED="\${PLATFORM//\\//-}" SAID=$MESSAGE QUOTED='$ARCH "x"' LAST="it's \\$5"
ENV LEGACY two  words $ARCH
LABEL "a b"="\${ARCH%64}" arch=\${ARCH:?none}
EXPOSE \${PORTS:-8080} 53/udp
EXPOSE \${NO_PORT}
VOLUME ["/data \${ARCH}"]
USER \${ID:-0}:0
STOPSIGNAL \${SIGNAL:-SIGQUIT}
WORKDIR /w/\${ARCH/arm/x} y
HEALTHCHECK --start-interval=2s --interval=1m30s --retries=0 CMD true
ADD \${JAR} $NAME.txt ["/none"] ./
`.replace(' ["/none"]', '')
  const more = `ADD ["my file.txt", "\${JAR}", "/j/"]
COPY --chmod=u=rwX,go=rX docs /docs
COPY --chmod=+x out/app.jar none* /run/
COPY ../out/app.jar /above
RUN stat -c '%n %a' /docs /docs/a /run/app.jar && ls -A . /j /above && printf '%s\\n' "$SAID"
`
  const files = {
    ...{ Dockerfile: Dockerfile + more, 'out/app.jar': 'jar', 'lib-1.0+build@2,a.txt': 'lib' },
    ...{ 'my file.txt': 'mine', 'docs/a': 'a' },
  }
  const message = `two\nlines "of" $HOME \\ ${'x'.repeat(5000)}`
  const { imageId, log } = await scene.buildFiles(files, { organizationId, env: { MESSAGE: message } })
  const config = await configOf(imageId)
  const env = Object.fromEntries((config.Env ?? []).map((each) => [each.slice(0, each.indexOf('=')), each]))
  assert.equal(env.ARCH, 'ARCH=arm64')
  assert.equal(env.DASHED, 'DASHED=linux-arm64')
  assert.equal(env.SAID, `SAID=${message}`)
  assert.equal(env.QUOTED, 'QUOTED=$ARCH "x"')
  assert.equal(env.LAST, `LAST=it's $5`)
  assert.equal(env.LEGACY, 'LEGACY=two  words arm64')
  assert.deepEqual(config.Labels, { 'a b': 'arm', arch: 'arm64' })
  assert.deepEqual(Object.keys(config.ExposedPorts!).sort(), ['53/udp', '8080/tcp'])
  assert.deepEqual(config.Volumes, { '/data arm64': {} })
  assert.deepEqual([config.User, config.StopSignal, config.WorkingDir], ['0:0', 'SIGQUIT', '/w/x64 y'])
  assert.deepEqual(config.Healthcheck, { Test: ['CMD-SHELL', 'true'], Interval: 90_000_000_000 })
  assert.match(log, /EXPOSE has no effect: its variables are empty\.\n/)
  assert.match(log, /HEALTHCHECK --start-interval=2s has no effect: this Docker engine is older than version 25/)
  assert.match(log, /^\/docs 755\n\/docs\/a 644\n\/run\/app\.jar 755\n/m)
  assert.match(
    log,
    /^\/above\n\n\.:\napp\.jar\nlib-1\.0\+build@2,a\.txt\n\n\/j:\napp\.jar\nmy file\.txt\ntwo\nlines "of" \$HOME/m,
  )
})

test('COPY --from leaves out, keeps folders and changes modes, and the other stage stays as it is', async () => {
  const Dockerfile = `FROM ${busyboxImage} AS made
RUN mkdir -p /out/var/deep '/out/a b' /lib/x && touch /out/.lock /out/var/v /out/var/deep/w.md '/out/a b/f.md' /out/top.md && \\
    touch /lib/x/libone.so /lib/x/libtwo.so && chmod 600 /lib/x/libone.so && chown 7:8 /lib/x/libone.so
FROM ${busyboxImage}
COPY --from=made --exclude=var --exclude=.lock /out /one
COPY --from=made --exclude=**/*.md /out /two
COPY --from=made --parents --chmod=u+x /lib/x/libo* /out/./var/deep /three/
COPY --from=made /out /whole
RUN cd / && find one two three whole ! -type d | sort && stat -c '%n %a %u:%g' /three/lib/x/libone.so
`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId })
  const listed = [
    ...['one/a b/f.md', 'one/top.md', 'three/lib/x/libone.so', 'three/var/deep/w.md', 'two/.lock', 'two/var/v'],
    ...['whole/.lock', 'whole/a b/f.md', 'whole/top.md', 'whole/var/deep/w.md', 'whole/var/v'],
  ]
  assert.ok(log.includes(`${listed.join('\n')}\n/three/lib/x/libone.so 700 7:8\n`), log)
})

test('a secret is found by an id with dashes or dots, and a missing optional one is noted in the log', async () => {
  const env = { 'npm-token': 'exact-value', NPM_TOKEN: 'upper-value', MY_KEY_FILE: 'value-of-the-file' }
  const Dockerfile = `FROM ${busyboxImage}
RUN --mount=type=secret,id=npm-token wc -c < /run/secrets/npm-token
RUN --mount=type=secret,id=my.key-file cat /run/secrets/my.key-file; wc -c < /run/secrets/my.key-file
RUN --mount=type=secret,id=not-there true
`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId, env })
  assert.match(log, /^11$/m)
  assert.match(log, /^\*\*\*17$/m)
  assert.doesNotMatch(log, /value-of-the-file/)
  const said = /The secret not-there is not mounted: the service has no variable with this name\./
  assert.match(log, said)
  // Also where nothing runs.
  assert.match((await scene.buildFiles({ Dockerfile, other: newId() }, { organizationId, env })).log, said)
})

test('ONBUILD keeps instructions that the engine does not know for builds from the image', async () => {
  answers.set('/later', (_, response) => void response.end('later'))
  const base = await scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage}
ENV P=linux/arm64
ONBUILD ENV A=\${P#linux/}
ONBUILD HEALTHCHECK --start-interval=1s --timeout=7s CMD true
ONBUILD ADD --chmod=+r ${origin}/later /later
ONBUILD COPY --chmod=u=rw,go= f /f
`,
    },
    { organizationId },
  )
  const id = base.imageId.replace('sha256:', '')
  const { imageId, log } = await scene.buildFiles(
    { Dockerfile: `FROM ${id}\nRUN stat -c '%n %a' /later /f\n`, f: 'f' },
    { organizationId },
  )
  const config = await configOf(imageId)
  assert.ok(config.Env!.includes('A=arm64'))
  assert.deepEqual(config.Healthcheck, { Test: ['CMD-SHELL', 'true'], Timeout: 7_000_000_000 })
  assert.match(log, /^\/later 644\n\/f 600$/m)
})

test('an error names the line of the file, whatever the engine got', async () => {
  const refused = async (text: string) =>
    (await scene.refused({ Dockerfile: text }, { organizationId }, 'build_failed')).message
  const head = `# syntax=docker/dockerfile:1\n\nFROM ${busyboxImage}\nENV A=1 \\\n  B=2\nRUN true\n\n`
  assert.match(await refused(`${head}ENV C=3\nCOPY none /x\n`), /line 9: COPY failed: [^()]*$/)
  assert.match(await refused(`${head}LABEL a=b\nSTOPSIGNAL nothing\n`), /line 9: .*nothing/i)
  assert.match(await refused(`${head}EXPOSE 99999999\n`), /line 8: /)
  assert.match(await refused(`${head}ARG X\nENV C="\${X:?is missing}"\n`), /line 9: X: is missing\.$/)
  assert.match(await refused(`${head}COPY --chmod=\${A}9 none /x\n`), /line 8: --chmod must be an octal number/)
})
