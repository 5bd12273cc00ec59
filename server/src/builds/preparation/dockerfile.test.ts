import assert from 'node:assert/strict'
import { test } from 'node:test'
import { patience } from '../../../test/support/until.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { baseNames, planStages, secretIds, usualPlatform } from './build-plan.ts'
import {
  type CopyInstruction,
  declaredArgs,
  parseDockerfile,
  pickBuildArgs,
  readFragment,
  readTriggers,
  valueIn,
} from './dockerfile.ts'
import { addedSource, copiedSource } from './dockerfile-copy.ts'

const cases: { what: string; text: string; args: string[]; bases: string[]; target?: string; given?: object }[] = [
  { what: 'a plain file', text: 'FROM busybox:1\nRUN true\n', args: [], bases: ['busybox:1'] },
  { what: 'ARG in every place', text: 'ARG A=1\nFROM x\narg B\nARG C=3 D', args: ['A', 'B', 'C', 'D'], bases: ['x'] },
  { what: 'a global default', text: 'ARG V=24\nFROM node:$V', args: ['V'], bases: ['node:24'] },
  { what: 'a given value', text: 'ARG V=24\nFROM node:${V}', args: ['V'], bases: ['node:20'], given: { V: '20' } },
  { what: 'a default in place', text: 'ARG V\nFROM node:${V:-22}', args: ['V'], bases: ['node:22'] },
  { what: 'an alternative', text: 'ARG V=1\nFROM node${V:+-slim}', args: ['V'], bases: ['node-slim'] },
  { what: 'defaults of defaults', text: 'ARG A=1\nARG B=x$A\nFROM $B', args: ['A', 'B'], bases: ['x1'] },
  {
    what: 'stages',
    text: 'FROM a AS One\nFROM b AS three\nFROM one\nCOPY --from=three x y',
    args: [],
    bases: ['a', 'b'],
  },
  { what: 'stages that nobody needs', text: 'FROM a AS one\nFROM one\nFROM b as two', args: [], bases: ['b'] },
  { what: 'a target', text: 'FROM a AS one\nFROM b AS two', args: [], bases: ['a'], target: 'ONE' },
  { what: 'a target by number', text: 'FROM a\nFROM b', args: [], bases: ['a'], target: '0' },
  { what: 'scratch', text: 'FROM scratch\nCOPY --from=nginx:1 /a /b', args: [], bases: ['nginx:1'] },
  {
    what: 'copies of stages',
    text: 'FROM a AS b\nFROM c\nCOPY --from=b x y\nCOPY --from=0 x y',
    args: [],
    bases: ['a', 'c'],
  },
  { what: 'a platform', text: 'FROM --platform=linux/amd64 a AS b', args: [], bases: ['a'] },
  { what: 'comments', text: '# ARG X\nFROM a\n  # ARG Y\nRUN echo ARG Z', args: [], bases: ['a'] },
  { what: 'continued lines', text: 'FROM \\\n # note\n a\nARG \\\nB=1', args: ['B'], bases: ['a'] },
  { what: 'another escape', text: '# escape=`\nFROM a\nARG `\nB', args: ['B'], bases: ['a'] },
  {
    what: 'the usual syntax',
    text: '# syntax=docker/dockerfile:1.7\n# escape=`\nFROM a\nARG `\nB',
    args: ['B'],
    bases: ['a'],
  },
  {
    what: 'what looks like a directive below',
    text: '# a comment\n# escape=`\nFROM a\nARG \\\nB',
    args: ['B'],
    bases: ['a'],
  },
  { what: 'Windows line ends', text: 'FROM a\r\nARG B\r\n', args: ['B'], bases: ['a'] },
  { what: 'quotes', text: 'ARG "A=b c"\nFROM "x"\nARG B="d e"', args: ['A', 'B'], bases: ['x'] },
  { what: 'a command that only looks like ARG', text: 'FROM a\nRUN x \\\n  ARG B', args: [], bases: ['a'] },
]

for (const { what, text, args, bases, target, given } of cases)
  test(`a Dockerfile with ${what}`, () => {
    const file = parseDockerfile(text)
    assert.deepEqual(declaredArgs(file), args)
    const planned = planStages(file, (given ?? {}) as Record<string, string>, target ?? null, usualPlatform)
    assert.deepEqual(baseNames(planned), bases)
  })

test('only declared variables are passed on, sorted, and names of Object.prototype are not variables', () => {
  const file = parseDockerfile('FROM a\nARG B\nARG A\nARG toString\nARG C')
  assert.deepEqual(pickBuildArgs(file, { A: '1', B: '2', SECRET: 'x' }), { A: '1', B: '2' })
})

const codeOf = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    assert.ok(error instanceof DeploymentError, String((error as Error).stack))
    return error.code
  }
  return 'accepted'
}

const plan = (text: string) => planStages(parseDockerfile(text), {}, null, usualPlatform)

const addresses: [what: string, text: string][] = [
  ['an address', 'FROM a\nADD http://127.0.0.1/x /x'],
  ['an address behind flags', 'FROM a\nadd --chown=1:1 https://h/x /x'],
  ['an address in JSON', 'FROM a\nADD ["https://h/x", "/x"]'],
  ['an address over two lines', 'FROM a\nAD\\\nD ht\\\ntp://h/x /x'],
  ['an address cut at its colon', 'FROM a\nADD http:\\\n//h/x /x'],
  ['an address behind a doubled escape', 'FROM a\nRUN echo \\\\\nADD http://h/x /x'],
  ['an address with another escape', '# escape=`\nFROM a\nADD http:`\n//h/x /x'],
  ['an address split by a variable', 'FROM a\nENV S=/\nADD http:${S}/127.0.0.1:28999/env-split /leak'],
  ['an address of a variable', 'FROM a\nARG U\nADD $U /x'],
  ['an address in JSON escapes', 'FROM a\nADD ["http:\\u002f\\u002f127.0.0.1:28999/json-escape","/leak"]'],
  ['an address with a backslash', 'FROM a\nADD http:\\//127.0.0.1/x /x'],
  ['an address with quotes', 'FROM a\nADD "http:"//127.0.0.1/x /x'],
  ['an address in capitals', 'FROM a\nADD HTTP://h/x /x'],
  ['an address for later', 'FROM a\nONBUILD ADD http://h/x /x'],
]

for (const [what, text] of addresses)
  test(`what ADD reads is known to be a download before the engine gets anything: ${what}`, () => {
    const file = parseDockerfile(text)
    const last = file.stages[0]!.instructions.at(-1)!
    const [each] = last.kind === 'onbuild' ? readTriggers([last.rest], file.stages[0]!) : [last]
    assert.equal(each!.kind, 'copy')
    const { words, line } = each as CopyInstruction
    const values: Record<string, string> = { S: '/', U: 'https://h/x' }
    const source = addedSource(
      valueIn({ line }, words[0]!, file.sign, (name) => values[name]),
      line,
    )
    assert.equal(source.type, 'download')
  })

test('whatever is not a download is a path below the folder of the build, for any engine', () => {
  for (const source of [
    'http',
    'http:/h/x',
    'htt p://h/x',
    'ftp://h/x',
    '../../x',
    '//h/x',
    '',
    '.',
    './http://h/x',
    'a/../..',
  ]) {
    const found = addedSource(source, 1)
    assert.equal(found.type, 'path', source)
    assert.match((found as { path: string }).path, /^\/(?![/.])/, source)
  }
  assert.deepEqual(copiedSource('http://h/x'), { type: 'path', path: '/http:/h/x', written: 'http://h/x' })
})

const refusedOnes: [what: string, text: string][] = [
  ['a git address', 'FROM a\nADD git@h:a/b.git /x'],
  ['a git address over https', 'FROM a\nADD https://h/a.git#v1:sub /x'],
  ['a git address with a scheme', 'FROM a\nADD --keep-git-dir=true ssh://git@h/a /x'],
  ['a git address in a stage that nobody needs', 'FROM a\nADD git://h/x /x\nFROM b'],
  ['a copy for later', 'FROM a\nONBUILD COPY --from=nginx:1 /a /b'],
  ['the network of the machine', 'FROM a\nRUN --network=host true'],
  ['privileges', 'FROM a\nRUN --security=insecure true'],
  ['a copy from a variable', 'FROM a\nARG X\nCOPY --from=$X /a /b'],
]

for (const [what, text] of refusedOnes)
  test(`what reaches further than a build may is refused: ${what}`, () => {
    assert.equal(
      codeOf(() => parseDockerfile(text)),
      'build_refused',
    )
  })

const broken: [what: string, text: string][] = [
  ['nothing', ''],
  ['an unknown instruction', 'FROM a\nNONSENSE'],
  ['an instruction in front of FROM', 'RUN true\nFROM a'],
  ['RUN --device', 'FROM a\nRUN --device=x true'],
  ['a here-document without an end', 'FROM a\nRUN <<EOF\ntrue'],
  ['a here-document with another name', 'FROM a\nRUN <<../x\ntrue\n../x'],
  ['a here-document for later', 'FROM a\nONBUILD RUN <<EOF\ntrue\nEOF'],
  ['a mount for later', 'FROM a\nONBUILD RUN --mount=type=cache,target=/x true'],
  ['COPY --chmod that is no mode', 'FROM a\nCOPY --chmod=u+q a b'],
  ['COPY of nothing', 'FROM a\nCOPY a'],
  ['an operator that is not known', 'FROM a\nENV A=${B^^}'],
  ['ENV without a value', 'FROM a\nENV A'],
  ['ENV with a word that is no pair', 'FROM a\nENV A=b c'],
  ['LABEL without anything', 'FROM a\nLABEL'],
  ['HEALTHCHECK without a command', 'FROM a\nHEALTHCHECK --interval=5s'],
  ['HEALTHCHECK with a duration that is none', 'FROM a\nHEALTHCHECK --start-interval=5 CMD true'],
  ['HEALTHCHECK with an option that is not known', 'FROM a\nHEALTHCHECK --delay=5s CMD true'],
  ['a quote in USER that is not closed', 'FROM a\nUSER "x'],
  ['an ssh mount', 'FROM a\nRUN --mount=type=ssh true'],
  ['a mount of another type', 'FROM a\nRUN --mount=type=toString,target=/x true'],
  ['a mount with an option of another type', 'FROM a\nRUN --mount=type=tmpfs,target=/x,id=y true'],
  ['a mount from a variable', 'FROM a\nRUN --mount=from=$X,target=/x true'],
  ['a secret with a variable in its name', 'FROM a\nRUN --mount=type=secret,id=$X true'],
  ['a mount from a later stage', 'FROM a\nRUN --mount=from=1,target=/x true\nFROM b'],
  ['a flag in quotes', 'FROM a\nCOPY --fr\\om=nginx a b'],
  ['a flag twice', 'FROM a\nCOPY --from=a --from=b a b'],
  ['flags that end with nothing', 'FROM a\nCOPY -- a b'],
  ['a control character', 'FROM a\nADD x \u000bhttp://h/x\u000b/y'],
  ['a line end inside a line', 'FROM a\nENV A=1\rADD http://h/x /x'],
  ['an open end', 'FROM a\nENV A=1 \\\\\nENV B=2 \\'],
  ['an escape at the end of a line', 'FROM a\nENV A=b\\\\'],
  ['ONBUILD FROM', 'FROM a\nONBUILD FROM b'],
  ['ONBUILD ONBUILD', 'FROM a\nONBUILD ONBUILD RUN x'],
  ['two stages of a name', 'FROM a AS x\nFROM b AS X'],
  ['a stage called scratch', 'FROM a AS scratch\nFROM b'],
  ['an empty base', 'ARG A\nFROM $A'],
  ['a copy from a later stage', 'FROM a\nCOPY --from=1 x y\nFROM b'],
  ['a base that becomes empty', 'ARG A=x\nFROM ${A%x}'],
  ['a required argument', 'ARG A\nFROM ${A:?give a base}'],
  ['a quote that is not closed', "ARG A='x\nFROM $A"],
  [
    'a value that doubles',
    `ARG A=${'x'.repeat(5000)}\n${Array.from({ length: 30 }, (_, n) => `ARG A${n}=$A${n === 0 ? '' : n - 1}$A${n === 0 ? '' : n - 1}`).join('\n')}\nFROM $A29`,
  ],
]

for (const [what, text] of broken)
  test(`a Dockerfile that cannot be built: ${what}`, () => {
    assert.equal(
      codeOf(() => plan(text)),
      'build_failed',
    )
  })

test('another directive than those of every builder is refused', () => {
  for (const text of [
    '# foo=bar\nFROM a',
    '# escape=x\nFROM a',
    '# syntax=evil.example/x:1\nFROM a',
    '# syntax=docker/dockerfile-evil\nFROM a',
    '# syntax=evil.example/docker/dockerfile:1\nFROM a',
    '# escape=`\n# escape=\\\nFROM a',
  ])
    assert.equal(
      codeOf(() => parseDockerfile(text)),
      'build_refused',
      text,
    )
})

test('plain paths may be added, and whatever a RUN fetches', () => {
  for (const text of [
    'ADD a.tar /x',
    'ADD a b? */c /x/$V',
    'ADD --chown=1:1 a /x',
    'ADD app-$V.tar.gz ${JAR_FILE} /x/',
    'ADD ["my file.txt", "/x"]',
    'ADD lib-1.0+build@2,a.txt /x',
    `ADD --checksum=sha256:${'a'.repeat(64)} https://h/x /x`,
    'COPY --chmod=u=rwX,go=rX a /x',
    'ADD --chmod=+x a /x',
    'RUN --mount="type=cache,target=/x" true',
    'HEALTHCHECK --start-interval=2s --interval=1m30s --retries=0 CMD true',
    'ENV X=${P#linux/} Y=${P//\\//-} Z=${Q:-a}',
    'COPY http /x',
    'RUN wget http://h/x',
    'ONBUILD ADD a /x',
    'RUN cat <<< x',
    'RUN echo $((1<<2))',
  ])
    assert.equal(
      codeOf(() => parseDockerfile(`FROM a\n${text}`)),
      'accepted',
      text,
    )
})

test('triggers of a base are read as strictly as a Dockerfile', () => {
  const { stages } = parseDockerfile('FROM a')
  const code = (...triggers: string[]) => codeOf(() => readTriggers(triggers, stages[0]!))
  assert.equal(code('COPY . /app', 'RUN make', 'ADD a.tar /x'), 'accepted')
  for (const trigger of ['ADD git@h:x /x', 'ADD ["https:\\u002f\\u002fh/x.git","/x"]', 'COPY --from=nginx:1 /a /b'])
    assert.equal(code(trigger), 'build_refused', trigger)
  for (const trigger of [
    'FROM a',
    'ONBUILD RUN x',
    'NONSENSE',
    'COPY a b\nADD http://h/x /x',
    '# escape=`\nADD http://h/x /x',
    '',
    'RUN --mount=type=cache,target=/x x',
    'RUN <<EOF',
  ])
    assert.equal(code(trigger), 'build_failed', trigger)
})

test('a fragment begins no image of its own, and each of its instructions ends where it ends', () => {
  assert.deepEqual(readFragment('# a note\nENV A=1 \\\n  B=2\nrun apk add x\n'), ['ENV A=1   B=2', 'run apk add x'])
  for (const text of ['FROM a', 'FR\\\nOM a', 'ENV A=1\nONBUILD RUN x', 'ADD git://h/x /x', '# escape=`\nRUN a'])
    assert.equal(
      codeOf(() => readFragment(text)),
      'build_refused',
      text,
    )
  for (const text of ['ENV A=1 \\\\', 'RUN <<EOF', 'RUN x \\\\'])
    assert.equal(
      codeOf(() => readFragment(text)),
      'build_failed',
      text,
    )
})

const runOf = (text: string) => {
  const run = parseDockerfile(`FROM a\n${text}`).stages[0]!.instructions[0]!
  assert.equal(run.kind, 'run')
  return run as Extract<typeof run, { kind: 'run' }>
}

test('a here-document is the command, a program, or what the shell reads, as BuildKit has it', () => {
  assert.equal(
    runOf('RUN <<EOF\n# no comment\n\necho one \\\n  two\nEOF').command,
    '# no comment\n\necho one \\\n  two\n',
  )
  assert.equal(runOf('RUN <<-EOF\n\t\techo one\n\tEOF').command, 'echo one\n')
  const { command, script } = runOf('RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF')
  assert.deepEqual([command, script?.text], ['/dev/pipes/EOF', '#!/usr/bin/env python3\nprint(1)\n'])
  assert.equal(
    runOf('RUN cat <<A >/a && cat <<"B" >/b\n1\nA\n2\nB\n').command,
    'cat <<A >/a && cat <<"B" >/b\n1\nA\n2\nB',
  )
  assert.equal(runOf('RUN echo "<<EOF" a<<b\n').command, 'echo "<<EOF" a<<b')
  const { stages } = parseDockerfile('FROM a\nCOPY <<x <<"y" /d/\nFROM b\nx\nADD http://h/x /x\ny\nRUN true')
  assert.equal(stages.length, 1)
  assert.deepEqual(stages[0]!.instructions[0]!.heredocs, [
    { name: 'x', expand: true, chomp: false, content: 'FROM b\n' },
    { name: 'y', expand: false, chomp: false, content: 'ADD http://h/x /x\n' },
  ])
})

test('stages, images and secrets that mounts need are known before the build', () => {
  const text = `FROM a AS one
RUN --mount=type=secret,id=UNUSED true
FROM b AS two
RUN --mount=type=secret,target=/root/.npmrc --mount=type=secret,id=TOKEN,env=T true
FROM c
RUN --mount=from=two,target=/two --mount=type=bind,from=d,source=/x,target=/x true
`
  const planned = plan(text)
  assert.deepEqual(baseNames(planned), ['b', 'c', 'd'])
  assert.deepEqual(secretIds(planned), ['.npmrc', 'TOKEN'])
})

test('the platform that is built for is known to FROM and to every ARG that asks', () => {
  const { stages, globals } = plan('FROM --platform=$BUILDPLATFORM a\nARG TARGETARCH')
  assert.equal(stages[0]!.platform, 'linux/amd64')
  assert.equal(globals.get('TARGETARCH'), 'amd64')
})

test('reading takes no longer than the text is long', () => {
  const texts = [
    `FROM a\nRUN ${' '.repeat(200_000)}x`,
    `FROM a\n${'\\\n'.repeat(120_000)}`,
    `FROM a\nCOPY ${'--a=b '.repeat(40_000)}x`,
    `FROM ${'${A:-'.repeat(50_000)}`,
    `FROM a\nENV ${'"\\'.repeat(25_000)}`,
    `FROM a\nARG A=${'\'"'.repeat(15_000)}`,
    `${'FROM a\n'.repeat(36_000)}`,
    `FROM a\nADD ${'x '.repeat(29_000)}/y`,
    `FROM a\nRUN ${'<<A '.repeat(40_000)}`,
    `FROM a\n${'RUN <<A\nA\n'.repeat(20_000)}`,
    `FROM a\nRUN <<A\n${'\t'.repeat(200_000)}\nA`,
    `FROM a\nRUN --mount=${'a=b,'.repeat(40_000)} x`,
  ]
  for (const text of texts) {
    const start = performance.now()
    codeOf(() => plan(text))
    assert.ok(performance.now() - start < 500 * patience, `${text.slice(0, 20)} took ${performance.now() - start} ms`)
  }
  assert.equal(
    codeOf(() => parseDockerfile(`FROM a\n# ${'x'.repeat(300_000)}`)),
    'build_refused',
  )
})
