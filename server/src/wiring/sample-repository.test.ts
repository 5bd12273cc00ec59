import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createOutbound, OutboundRefused } from '../lib/net/outbound.ts'
import { reachSample } from './sample-repository.ts'

test('our own address is open to git for the sample, and for nothing beside it', async () => {
  // Nothing listens at port 1: an allowed request fails to connect, and is not refused.
  const sample = 'http://127.0.0.1:1/samples/hello.git'
  const network = reachSample(createOutbound({ allow: [] }), sample)
  const open = (url: string) =>
    network.open({ method: 'GET', url, maxBytes: 100, silenceMs: 2000, signal: AbortSignal.timeout(5000) })
  for (const path of ['', '/info/refs?service=git-upload-pack', '/./git-upload-pack']) {
    await network.check(new URL(sample + path))
    await assert.rejects(open(sample + path), (error) => !(error instanceof OutboundRefused), path)
  }
  const beside = ['/../../organization', '/%2e%2e/%2E%2E/organization', 'x/info/refs', '/..', '\\..\\..\\organization']
  for (const path of beside) {
    await assert.rejects(network.check(new URL(sample + path)), OutboundRefused, path)
    await assert.rejects(open(sample + path), OutboundRefused, path)
  }
  for (const url of ['http://127.0.0.1:2/samples/hello.git', 'http://127.0.0.1:1@127.0.0.1:2/samples/hello.git'])
    await assert.rejects(open(url), OutboundRefused, url)
})
