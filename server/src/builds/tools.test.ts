import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { DeploymentError } from '../lib/errors.ts'
import { parseDockerfile } from './preparation/dockerfile.ts'
import { toolDockerfile } from './preparation/tool-dockerfile.ts'
import { toolVersions } from './tools.ts'

test('a fragment stands between the tool and the module, and takes nothing of what follows into its last line', () => {
  for (const fragment of [null, '', 'ENV A=1', 'RUN echo x \\', '# only a note \\', 'RUN a \\\n  b\nENV C=d']) {
    const { stages } = parseDockerfile(toolDockerfile(fragment))
    assert.deepEqual([stages.length, stages[0]!.base], [1, '$' + '{SLIPWAY_TOOL}'])
    assert.deepEqual(
      stages[0]!.instructions.slice(-2).map(({ text }) => text),
      ['USER 0', 'COPY . /module'],
    )
  }
})

test('a tool of an image gets our script and nothing else of ours', () => {
  const { stages } = parseDockerfile(toolDockerfile('RUN true', 'tools/tofu:1'))
  assert.deepEqual(
    stages.map(({ base, name }) => [base, name]),
    [
      ['$' + '{SLIPWAY_TOOL}', 'slipway'],
      ['tools/tofu:1', null],
    ],
  )
  assert.deepEqual(
    stages[1]!.instructions.map(({ text }) => text),
    ['RUN true', 'USER 0', 'COPY --from=slipway /bin/slipway-module /bin/slipway-module', 'COPY . /module'],
  )
})

test('a fragment that begins an image of its own is refused, however it is written', () => {
  for (const fragment of ['FROM x', 'fr\\\nom x', 'ENV A=1 \\\n\n\nB=2\nFROM x', 'ONBUILD RUN x', '# escape=`\nRUN x'])
    assert.throws(
      () => toolDockerfile(fragment),
      (error: unknown) => error instanceof DeploymentError && error.code === 'build_refused',
      fragment,
    )
})

test('installed tools are listed with the versions that they say themselves; what says none is left out', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'slipway-tools-'))
  const program = async (name: string, lines: string): Promise<string> => {
    const path = join(folder, name)
    await writeFile(path, `#!/bin/sh\n${lines}\n`, { mode: 0o755 })
    return path
  }
  try {
    const tofu = await program('tofu', `echo "{\\"terraform_version\\":\\"1.9.4\\",\\"said\\":\\"$*\\"}"`)
    const silent = await program('silent', 'exit 1')
    const strange = await program('strange', `echo '{"terraform_version":"<b>1</b>"}'`)
    assert.deepEqual(await toolVersions({ tofu, terraform: silent }), [{ name: 'tofu', version: '1.9.4' }])
    assert.deepEqual(await toolVersions({ tofu: strange, terraform: join(folder, 'none') }), [])
  } finally {
    await rm(folder, { recursive: true })
  }
})
