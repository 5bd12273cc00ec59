/** Answers that an engine on another machine can give to a build. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { BuildLeftovers } from './build-containers.ts'
import { createBuildLog } from './build-log.ts'
import { buildPiece, type Piece } from './engine-build.ts'

const build = (said: Iterable<Buffer>): Promise<string> => {
  const piece: Piece = {
    ...{ tar: Readable.from([]), dockerfile: 'Dockerfile', lines: [], headLines: 0, buildArgs: {} },
    deadlineMs: 1000,
  }
  const log = createBuildLog([], () => {})
  const engine = standIn<Engine>({ stream: async () => Readable.from(said) })
  return buildPiece(engine, standIn<BuildLeftovers>({ add() {} }), piece, log, () => {}, new AbortController().signal)
}

test('a message of a build is counted before it is parsed, and no longer than it may be', async (t) => {
  const made = '{"aux":{"ID":"sha256:a"}}\n'
  assert.equal(await build([Buffer.from(made)]), 'sha256:a')
  const longest = longestParsed(t)
  await assert.rejects(build([Buffer.from(`{"x":[${'{},'.repeat(100_000)}{}]}\n${made}`)]), {
    code: 'engine_unavailable',
  })
  let sent = 0
  const endless = function* (): Generator<Buffer> {
    for (; sent < 64; sent += 1) yield Buffer.alloc(1 << 20, 'x')
  }
  await assert.rejects(build(endless()), { code: 'engine_unavailable' })
  assert.ok(sent < 8, `${sent} MB were read`)
  assert.equal(longest(), 0)
})
