import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bodyOf, bodyWithoutTriggers } from './run-step.ts'

const stepFrom = (Labels: Record<string, string> | null) => ({
  parent: { Id: 'sha256:x', Os: 'linux', Architecture: 'amd64', Config: { Labels, Cmd: ['sh'] } },
  words: ['true'],
  args: [],
  networkMode: 'container:x',
  limits: { memoryMb: 64, cpuMillicores: 500 },
})

test('a step is held to its limits, with few capabilities and no way to more', () => {
  const { HostConfig } = bodyOf(stepFrom(null))
  assert.deepEqual(HostConfig.CapDrop, ['NET_RAW', 'MKNOD'])
  assert.deepEqual(HostConfig.SecurityOpt, ['no-new-privileges'])
  assert.deepEqual([HostConfig.Memory, HostConfig.MemorySwap, HostConfig.CpuQuota], [2 ** 26, 2 ** 26, 50_000])
  assert.deepEqual([HostConfig.PidsLimit, HostConfig.CpuShares], [2048, 256])
})

test('a step is never taken for a container of a service, whatever labels its image has', () => {
  const step = stepFrom({ 'slipway.owner': 'x', 'slipway.service': 'y', other: 'z' })
  for (const { Labels } of [bodyOf(step), bodyWithoutTriggers(step.parent)])
    assert.deepEqual(Labels, { 'slipway.owner': '', 'slipway.service': '' })
})
