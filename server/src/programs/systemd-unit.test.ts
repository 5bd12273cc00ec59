import assert from 'node:assert/strict'
import { test } from 'node:test'
import { unitText } from './systemd-unit.ts'

const parts = { root: '/srv/slipway', user: 'deploy', path: '/opt/node/bin:/usr/bin', dataDir: null }

test('the unit starts this checkout as its owner, and a stop leaves router and database alone', () => {
  const lines = unitText(parts).split('\n')
  for (const line of [
    'User=deploy',
    'WorkingDirectory=/srv/slipway',
    'Environment="PATH=/opt/node/bin:/usr/bin"',
    'ExecStart=/bin/bash "/srv/slipway/bin/run" main',
    'KillMode=process',
    'WantedBy=multi-user.target',
  ])
    assert.ok(lines.includes(line), line)
  assert.ok(!lines.some((line) => line.includes('SLIPWAY_DATA_DIR')))
})

test('nothing in a path is taken for a specifier, a variable or a quote', () => {
  const text = unitText({ ...parts, root: '/srv/50% "x" $y', dataDir: '/data/a b' })
  assert.match(text, /^WorkingDirectory=\/srv\/50%% "x" \$y$/m)
  assert.match(text, /^ExecStart=\/bin\/bash "\/srv\/50%% \\"x\\" \$\$y\/bin\/run" main$/m)
  assert.match(text, /^Environment="SLIPWAY_DATA_DIR=\/data\/a b"$/m)
})
