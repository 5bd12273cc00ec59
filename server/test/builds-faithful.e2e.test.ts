/** Slipway's builder makes the same images from ordinary Dockerfiles as the engine's own. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { extract, pack } from 'tar-stream'
import type { ImageConfig } from '../src/builds/engine/image-config.ts'
import { finish } from '../src/images/engine-images.ts'
import { newId } from '../src/lib/ids.ts'
import { type BuildScene, type Files, openBuildScene } from './support/docker/build-scene.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { onlyAtNight } from './support/nightly.ts'

const organizationId = newId()
const made: string[] = []
let scene: BuildScene

before(async () => {
  scene = await openBuildScene()
})

after(async () => {
  for (const tag of made) await engine.call('DELETE', `/images/${tag}`, { query: { force: true } }).catch(() => {})
  await scene?.close()
  await engine.close()
})

/** Builds the same files with the engine alone; returns the image's name. */
const buildPlainly = async (files: Files, args: Record<string, string>): Promise<string> => {
  const archive = pack()
  for (const [name, content] of Object.entries(files)) archive.entry({ name, mode: 0o644 }, content as string | Buffer)
  archive.finalize()
  const tag = `slipway-plain-${newId()}:1`
  made.push(tag)
  const query = { version: 1, t: tag, nocache: true, buildargs: JSON.stringify(args), rm: true, networkmode: 'none' }
  await finish(await engine.stream('POST', '/build', { query, body: archive, deadlineMs: 120_000 }))
  return tag
}

/** Nothing, an empty list and an empty object have the same effect when a container is started. */
const isNothing = (value: unknown): boolean =>
  value === null || value === '' || (typeof value === 'object' && Object.keys(value as object).length === 0)

const fields = ['Hostname', 'Domainname', 'Image', 'ArgsEscaped']

const configOf = async (image: string): Promise<Record<string, unknown>> => {
  const { Config, Author } = await engine.call<{ Config: ImageConfig; Author: string }>('GET', `/images/${image}/json`)
  const kept = Object.entries(Config).filter(([name, value]) => !isNothing(value) && !fields.includes(name))
  return { ...Object.fromEntries(kept), Author }
}

/** Every file of an image: path, kind, owner, mode and size. */
const filesOf = async (image: string): Promise<string[]> => {
  const body = { Image: image, Entrypoint: ['/none'], HostConfig: { NetworkMode: 'none' } }
  const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { body })
  try {
    const found: string[] = []
    const archive = (await engine.stream('GET', `/containers/${Id}/export`)).pipe(extract())
    for await (const entry of archive) {
      const { name, type, uid, gid, mode, size, linkname } = entry.header
      found.push([name, type, uid, gid, (mode ?? 0).toString(8), type === 'file' ? size : '', linkname].join(' '))
      entry.resume()
    }
    return found.filter((line) => !/^(dev|proc|sys|etc\/(hosts|hostname|resolv.conf|mtab))[/ ]/.test(line)).sort()
  } finally {
    await engine.call('DELETE', `/containers/${Id}`, { query: { force: true, v: true } })
  }
}

const tarOf = async (name: string, text: string): Promise<Buffer> => {
  const archive = pack()
  archive.entry({ name, mode: 0o755, uid: 7, gid: 8 }, text)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

/** `ignored`: files that the engine's own client would not send. */
const same = async (files: Files, args: Record<string, string> = {}, ignored: string[] = []): Promise<string> => {
  const sent = Object.fromEntries(Object.entries(files).filter(([name]) => !ignored.includes(name)))
  const { imageId, log } = await scene.buildFiles(files, { organizationId, env: args })
  const plain = await buildPlainly(sent, args)
  assert.deepEqual(await configOf(imageId), await configOf(plain), log)
  assert.deepEqual(await filesOf(imageId), await filesOf(plain))
  return imageId
}

const stages = `ARG BASE=${busyboxImage}
FROM \${BASE} AS build
ARG VERSION=1.0
ENV NAME=app-$VERSION PLACE=/opt
ARG FULL=\${NAME}/\${VERSION:-x}
WORKDIR $PLACE/$FULL
RUN echo "$FULL $VERSION $NAME it's" > out
COPY src ./src
ARG VERSION=9
RUN ls -R . > list && echo "$VERSION" >> list
FROM ${busyboxImage}
COPY --from=build --chown=65534:100 /opt /opt
COPY --from=0 /opt /copy
ENV FINAL=1
USER nobody
WORKDIR /opt
EXPOSE 80/tcp 53/udp
CMD ["sh", "-c", "cat out"]
`

test('stages, arguments, variables, owners and ports', async () => {
  await same({ Dockerfile: stages, 'src/a': 'one', 'src/b/c': 'two' })
  await same({ Dockerfile: stages, 'src/a': 'one' }, { VERSION: '2\'3 "$x' })
  const unused = { Dockerfile: `FROM ${busyboxImage} AS unused\nRUN exit 7\nFROM ${busyboxImage}\nRUN true\n` }
  assert.doesNotMatch((await scene.buildFiles(unused, { organizationId })).log, /exit 7/)
})

test('the container settings of an image survive every RUN', { skip: onlyAtNight }, async () => {
  await same({
    Dockerfile: `FROM ${busyboxImage}
MAINTAINER Somebody <somebody@example.test>
LABEL a=1 "b c"="d e"
RUN true
CMD ["first", "$HOME", "it\\"s"]
ENV A=1 B="two words" C=$A
VOLUME /data /more
RUN echo gone > /data/x; echo stays > /kept
HEALTHCHECK --interval=7s --retries=2 CMD true
STOPSIGNAL SIGQUIT
SHELL ["/bin/sh", "-e", "-c"]
RUN true
RUN ["sh", "-c", "echo exec > /exec"]
USER 1000:1000
EXPOSE 8080
WORKDIR work
RUN id > /tmp/id; pwd >> /tmp/id
ENTRYPOINT ["/bin/sh", "-c"]
RUN true
LABEL f=g
`,
  })
})

test('the last instruction decides on command and entrypoint, in any order', { skip: onlyAtNight }, async () => {
  for (const lines of [
    ['RUN true'],
    ['ENTRYPOINT ["/bin/x"]', 'RUN true'],
    ['ENTRYPOINT ["/bin/x"]', 'RUN true', 'CMD y'],
    ['CMD y', 'RUN true', 'ENTRYPOINT x', 'RUN true'],
    ['ENTRYPOINT []', 'RUN true'],
    ['CMD []', 'RUN true', 'ENTRYPOINT ["/bin/x"]'],
  ])
    await same({ Dockerfile: [`FROM ${busyboxImage}`, ...lines, ''].join('\n') })
})

test('an empty base, a local archive, and files excluded by .dockerignore', { skip: onlyAtNight }, async () => {
  const files = {
    Dockerfile: `FROM ${busyboxImage} AS b
FROM scratch
ADD root.tar /
COPY --from=b /bin/ /bin/
RUN ["/bin/busybox", "touch", "/made"]
COPY . /all
`,
    'root.tar': await tarOf('from-archive', 'text'),
    '.dockerignore': '*.md\n!keep.md\n.dockerignore\n',
    'a.md': 'a',
    'keep.md': 'k',
    'folder/x.md': 'x',
  }
  await same(files, {}, ['a.md'])
  await same({ Dockerfile: `FROM ${busyboxImage}\nCOPY . /all\nRUN ls -a /all > /list\n`, file: 'text' })
})

test('another escape character', { skip: onlyAtNight }, async () => {
  await same({
    Dockerfile: `# escape=\`\nFROM ${busyboxImage}\nENV A=C:\\x \`\n  B=2\nRUN echo one \`\n  two > /out\nCOPY f /f\n`,
    f: '1',
  })
})

test('ONBUILD is kept for builds from the image, and run there', { skip: onlyAtNight }, async () => {
  const base = await same({
    Dockerfile: `FROM ${busyboxImage}
ONBUILD COPY f /from-trigger
ONBUILD RUN cat /from-trigger > /ran
ONBUILD ADD f /added
ONBUILD ENV T=1
RUN true
COPY f /f
`,
    f: 'text',
  })
  const id = base.replace('sha256:', '')
  await same({ Dockerfile: `FROM ${id}\nRUN echo $T > /t\nCMD ["x"]\n`, f: 'other' })
})

test('a build argument is visible in a RUN of its stage, but not in the container settings of the image', {
  skip: onlyAtNight,
}, async () => {
  const { imageId, log } = await scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage} AS one
ARG TOKEN
ENV SET=1
ARG SET=2
RUN echo "one=$TOKEN set=$SET"
FROM one
RUN echo "two=$TOKEN." ; env | sort | tr '\\n' ' '
`,
    },
    { organizationId, env: { TOKEN: 'canary-of-an-argument', SET: '3' } },
  )
  assert.match(log, /one=canary-of-an-argument set=1\n/)
  assert.match(log, /two=\.\n/)
  assert.equal(JSON.stringify(await configOf(imageId)).includes('canary'), false)
})
