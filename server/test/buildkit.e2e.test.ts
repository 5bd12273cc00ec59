/**
 * Features of Dockerfiles for BuildKit, on an engine of any version: mounts, here-documents, options of COPY. Secrets
 * leave no trace, mounts leave nothing in the image, and a cache belongs to one organization.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { createBuildContainers } from '../src/builds/engine/build-containers.ts'
import { newId } from '../src/lib/ids.ts'
import { systemClock } from '../src/lib/time/clock.ts'
import { type BuildScene, openBuildScene } from './support/docker/build-scene.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { engine } from './support/docker/docker.ts'
import { onlyAtNight } from './support/nightly.ts'
import { until } from './support/until.ts'

const organizationId = newId()
let scene: BuildScene

before(async () => {
  scene = await openBuildScene()
})

after(async () => {
  await scene?.close()
  await engine.close()
})

/** Volumes and containers that only builds have. */
const leftovers = async (): Promise<string[]> => {
  const { Volumes } = await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes')
  const containers = await engine.call<{ Names: string[] }[]>('GET', '/containers/json', { query: { all: true } })
  return [...(Volumes ?? []).map(({ Name }) => Name), ...containers.flatMap(({ Names }) => Names)].filter((name) =>
    name.replace('/', '').startsWith('slipway-build-'),
  )
}

/** The output of a shell command in `image`, run by a separate build. */
const ask = async (image: string, command: string): Promise<string> => {
  const Dockerfile = `FROM ${image.replace('sha256:', '')}\nUSER 0\nRUN ${command} # ${newId()}\n`
  const { log } = await scene.buildFiles({ Dockerfile }, { organizationId })
  return /^Step 3\/3 .*\n ---> Running in \w+\n([\s\S]*?)^ ---> \w+$/m.exec(log)?.[1] ?? log
}

const secret = `S3CRET-${newId()}`

test('a secret is readable in its step, and nowhere afterwards', async () => {
  const before = await leftovers()
  const files = {
    Dockerfile: `# syntax=docker/dockerfile:1.7
FROM ${busyboxImage}
RUN --mount=type=secret,id=TOKEN cat /run/secrets/TOKEN; wc -c < /run/secrets/TOKEN
RUN --mount=type=secret,id=TOKEN,target=/etc/own/npmrc,mode=0440,gid=7 stat -c '%a %u %g' /etc/own/npmrc
RUN --mount=type=secret,id=TOKEN,env=GIVEN [ "$GIVEN" = "$(printf %s "$GIVEN")" ] && echo "length=\${#GIVEN}"
RUN --mount=type=secret,id=NONE [ ! -e /run/secrets/NONE ] && echo none
RUN find / -xdev \\( -path '/run/secrets*' -o -path '/etc/own*' \\) -print
RUN [ -z "$GIVEN" ] && echo gone
`,
  }
  const url = await scene.repository(files)
  const { imageId, log } = await scene.build(url, { organizationId, env: { TOKEN: secret } })
  assert.doesNotMatch(log, new RegExp(secret))
  assert.match(log, new RegExp(`^\\*\\*\\*${secret.length}$`, 'm'))
  assert.match(log, /^440 0 7$/m)
  assert.match(log, new RegExp(`^length=${secret.length}$`, 'm'))
  assert.match(log, /^none$/m)
  assert.match(log, /^gone$/m)
  assert.doesNotMatch(log, /^\/(run\/secrets|etc\/own)/m)
  const detail = JSON.stringify(await engine.call('GET', `/images/${imageId}/json`))
  const history = JSON.stringify(await engine.call('GET', `/images/${imageId}/history`))
  assert.doesNotMatch(detail + history, new RegExp(secret))
  // Its value is not part of a step's cache key.
  const changed = await scene.build(url, { organizationId, env: { TOKEN: `OTHER-${newId()}` } })
  assert.equal(changed.imageId, imageId)
  const required = { Dockerfile: `FROM ${busyboxImage}\nRUN --mount=type=secret,id=NONE,required=true true\n` }
  assert.match((await scene.refused(required, { organizationId }, 'build_failed')).message, /requires the secret NONE/)
  await until(async () => (await leftovers()).every((name) => before.includes(name)), {
    timeoutMs: 60_000,
    what: 'the end of what builds made',
  })
})

test('a cache is kept between builds, and belongs to its organization', async () => {
  const Dockerfile = (more: string) =>
    `FROM ${busyboxImage}
WORKDIR /work
RUN --mount=type=cache,target=.cache,uid=5,mode=0750 stat -c '%a %u' .cache; cat .cache/kept; echo ${more} >> .cache/kept
RUN ls -a /work
`
  const first = await scene.buildFiles({ Dockerfile: Dockerfile('one') }, { organizationId })
  assert.match(first.log, /^750 5$/m)
  const second = await scene.buildFiles({ Dockerfile: Dockerfile('two') }, { organizationId })
  assert.match(second.log, /^one$/m)
  assert.doesNotMatch(second.log, /^\.cache$/m)
  const other = await scene.buildFiles({ Dockerfile: Dockerfile('three') }, { organizationId: newId() })
  assert.doesNotMatch(other.log, /^(one|two)$/m)
})

test('a locked cache is used by one step at a time, a private one is separate for each', {
  skip: onlyAtNight,
}, async () => {
  const step = (sharing: string) => ({
    Dockerfile: `FROM ${busyboxImage}
RUN --mount=type=cache,id=${sharing},target=/c,sharing=${sharing} [ ! -e /c/busy ] && touch /c/busy && sleep 1 && rm /c/busy # ${newId()}
`,
  })
  for (const sharing of ['locked', 'private'])
    await Promise.all([1, 2].map(() => scene.buildFiles(step(sharing), { organizationId })))
})

test('a cache above the limit of its organization is deleted after the build', { skip: onlyAtNight }, async () => {
  const small = await openBuildScene({ cacheMb: 1 })
  try {
    const Dockerfile = `FROM ${busyboxImage}\nRUN --mount=type=cache,target=/c dd if=/dev/zero of=/c/x bs=1M count=3\n`
    const kept = `FROM ${busyboxImage}\nRUN --mount=type=cache,target=/c dd if=/dev/zero of=/c/x bs=1k count=9\n`
    await small.buildFiles({ Dockerfile: kept }, { organizationId: newId() })
    await until(() => small.caches.sizes().some((kb) => kb > 0), { timeoutMs: 60_000, what: 'the size of a cache' })
    const [volume] = small.caches.volumes()
    await small.buildFiles({ Dockerfile }, { organizationId })
    await until(() => small.caches.volumes().length === 1, { timeoutMs: 60_000, what: 'the end of the cache' })
    assert.deepEqual(small.caches.volumes(), [volume])
    small.caches.age(15)
    await small.buildFiles({ Dockerfile: `FROM ${busyboxImage}\nRUN echo ${newId()}\n` }, { organizationId })
    await until(() => small.caches.volumes().length === 0, { timeoutMs: 60_000, what: 'the end of all caches' })
  } finally {
    await small.close()
  }
})

test('a bind shows files and folders, and drops writes to them', { skip: onlyAtNight }, async () => {
  const Dockerfile = `FROM ${busyboxImage} AS made
RUN mkdir /out && echo made > /out/f && ln -s /etc/passwd /out/link
FROM ${busyboxImage}
LABEL slipway.service=theirs
VOLUME /data
WORKDIR /app
RUN --mount=type=bind,source=package.json,target=package.json \\
    --mount=type=bind,target=/src \\
    --mount=from=made,source=/out,target=/made,rw \\
    --mount=type=bind,source=sub/inner,target=/data/inner \\
    --mount=type=tmpfs,target=/tmp/t,size=2m \\
    cat package.json /src/sub/inner /made/f /data/inner && echo more > /made/new && ! touch /src/x 2>/dev/null && \\
    df -k /tmp/t | tail -n 1 | awk '{ print "size=" $2 }' && echo kept > /app/kept
RUN ls -A /app /src /made /data 2>&1; true
`
  const files = { Dockerfile, 'package.json': '{"a":1}\n', 'sub/inner': 'inner\n' }
  const { log } = await scene.buildFiles(files, { organizationId })
  assert.match(log, /^\{"a":1\}\ninner\nmade\ninner\nsize=2048$/m)
  assert.match(log, /^\/app:\nkept$/m)
  assert.match(log, /ls: \/src: No such file/)
  assert.match(log, /ls: \/made: No such file/)
  const again = await scene.buildFiles(
    { ...files, unrelated: newId(), Dockerfile: `${Dockerfile}RUN echo new\n` },
    {
      organizationId,
    },
  )
  // The complete folder is one of its binds.
  assert.match(again.log, /^kept$/m)
})

test('a step runs again when what it binds has changed, and only then', async () => {
  const narrow = (text: string) => ({
    Dockerfile: `FROM ${busyboxImage}\nRUN --mount=source=f,target=/f cat /f\nCOPY other /other\n`,
    f: text,
    other: newId(),
  })
  const text = `${newId()}\n`
  assert.doesNotMatch((await scene.buildFiles(narrow(text), { organizationId })).log, /Using cache\n ---> \w+\nStep 3/)
  assert.match((await scene.buildFiles(narrow(text), { organizationId })).log, /Using cache/)
  assert.match((await scene.buildFiles(narrow(`x${text}`), { organizationId })).log, new RegExp(`^x${text}`, 'm'))
})

test('neither a source nor a target can leave the build', async () => {
  const to = { link: { symlink: '/etc/shadow' } }
  const from = `FROM ${busyboxImage}\n`
  for (const source of ['../../../etc/shadow', '/etc/shadow', 'none'])
    await scene.refused(
      { Dockerfile: `${from}RUN --mount=source=${source},target=/x cat /x\n`, f: '1' },
      { organizationId },
      'build_failed',
    )
  await scene.refused(
    { Dockerfile: `${from}RUN --mount=source=link,target=/x cat /x\n`, ...to },
    { organizationId },
    'build_failed',
  )
  const target = `${from}RUN ln -s /proc/1 /p && ln -s / /r
RUN --mount=source=f,target=/r/tmp/../here cat /here && ls -A / | grep -c here
RUN ls /here
`
  const { message } = await scene.refused({ Dockerfile: target, f: 'text' }, { organizationId }, 'build_failed')
  assert.match(message, /here: No such file/)
})

test('here-documents are run, copied, and made into files', async () => {
  const { imageId } = await scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage}
ENV NAME=world
RUN <<EOF
echo "one $NAME" > /one
# no comment of the Dockerfile
cat <<INNER > /two
two
INNER
EOF
RUN <<EOF
#!/bin/busybox sh
echo "three $0" > /three
EOF
RUN cat <<A > /four && cat <<-"B" >> /four
four $NAME
A
	five $NAME
	B
COPY <<-A <<"B" /d/
	hello $NAME "\\$x"
A
raw $NAME
B
COPY --chmod=750 <<EOF /run.sh
#!/bin/sh
EOF
`,
    },
    { organizationId },
  )
  const said = await ask(
    imageId,
    "cat /one /two /three /four /d/A /d/B; stat -c '%a' /run.sh; ls -A / | grep -c slipway || true",
  )
  assert.equal(
    said,
    'one world\ntwo\nthree /dev/pipes/EOF\nfour world\nfive $NAME\nhello world "$x"\nraw $NAME\n750\n0\n',
  )
})

test('options of COPY act on files of the build and of other stages', { skip: onlyAtNight }, async () => {
  const { imageId } = await scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage} AS made
RUN mkdir -p /out/sub && echo 1 > /out/a.sh && echo 2 > /out/sub/b && chmod 600 /out/a.sh
FROM ${busyboxImage}
ARG MODE=751
WORKDIR /w
COPY --link --chmod=$MODE --chown=7:8 --from=made /out/a* /out/sub ./
COPY --chmod=640 a.txt /chmod
COPY --exclude=*.md --exclude=deep/x docs /docs
COPY --parents docs/deep/*.md ./src/./lib/ /parents/
COPY .npmrc* none? ./
ADD --unpack=false --link a.txt /added
RUN --network=none [ "$(ls /sys/class/net)" = lo ]
FROM ${busyboxImage} AS unused
RUN exit 7
`,
      'a.txt': 'a',
      'docs/a.md': '1',
      'docs/b.txt': '2',
      'docs/deep/c.md': '3',
      'docs/deep/x': '4',
      'src/lib/l': '5',
    },
    { organizationId, targetStage: '1' },
  )
  const said = await ask(
    imageId,
    "stat -c '%n %a %u:%g' /w/* /chmod; find /docs /parents /w ! -type d | sort; cat /added; ls -A /w",
  )
  assert.equal(
    said,
    `/w/a.sh 751 7:8
/w/b 751 7:8
/chmod 640 0:0
/docs/b.txt
/docs/deep/c.md
/parents/docs/deep/c.md
/parents/lib/l
/w/a.sh
/w/b
aa.sh
b
`,
  )
})

test('a Dockerfile has its own ignore file, and the platform of the engine', async () => {
  const files = {
    'Dockerfile.app': `FROM --platform=$BUILDPLATFORM ${busyboxImage}
ARG TARGETARCH
RUN --mount=target=/src ls -A /src && echo "arch=$TARGETARCH"
`,
    'Dockerfile.app.dockerignore': 'ignored\nDockerfile*\n.dockerignore\n',
    '.dockerignore': 'seen\n',
    ignored: '1',
    seen: '2',
  }
  const { log } = await scene.buildFiles(files, { organizationId, dockerfilePath: 'Dockerfile.app' })
  assert.match(log, /^seen\narch=\w+$/m)
  const other = { Dockerfile: `FROM --platform=linux/s390x ${busyboxImage}\n` }
  assert.match((await scene.refused(other, { organizationId }, 'build_failed')).message, /builds for linux\/\w+ only/)
})

test('no container of a build has the labels by which Slipway recognizes its own', async () => {
  const label = `slipway.service=${newId()}`
  const control = new AbortController()
  const building = scene.buildFiles(
    {
      Dockerfile: `FROM ${busyboxImage}\nLABEL ${label}\nRUN --mount=type=cache,target=/c touch /c/x; sleep 600\n`,
    },
    { organizationId, signal: control.signal },
  )
  const running = async () =>
    (
      await engine.call<{ Names: string[]; State: string; Labels: Record<string, string> }[]>(
        'GET',
        '/containers/json',
        {
          query: { filters: JSON.stringify({ label: ['slipway.service'] }), all: true },
        },
      )
    ).filter(({ Names }) => Names.some((name) => name.startsWith('/slipway-build-')))
  await until(async () => (await running()).some(({ State }) => State === 'running'), {
    timeoutMs: 60_000,
    what: 'the step',
  })
  for (const { Labels } of await running()) assert.equal(Labels['slipway.service'], '')
  control.abort(new Error('enough'))
  await assert.rejects(building, /enough/)
})

test('the recorded leftovers of a killed process are removed: containers, then their volumes', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-leftovers-'))
  try {
    const containers = createBuildContainers(engine, folder, systemClock)
    const made = containers.open()
    const [volume, name] = [made.name('volume'), made.name('container')]
    writeFileSync(made.file(), 'half of a download')
    await engine.call('POST', '/volumes/create', { body: { Name: volume } })
    const Mounts = [{ Type: 'volume', Source: volume, Target: '/v' }]
    const body = { Image: busyboxImage, Cmd: ['sleep', '600'], HostConfig: { NetworkMode: 'none', Mounts } }
    await engine.call('POST', '/containers/create', { query: { name }, body })
    await engine.call('POST', `/containers/${name}/start`)
    await createBuildContainers(engine, folder, systemClock).sweep()
    const left = await leftovers()
    assert.ok(!left.includes(volume) && !left.includes(`/${name}`))
    assert.deepEqual(readdirSync(folder), [])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
