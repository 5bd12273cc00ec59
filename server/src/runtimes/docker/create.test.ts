import assert from 'node:assert/strict'
import { test } from 'node:test'
import { EngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { explainRefusal } from './create.ts'

const id = 'ab'.repeat(32)
const store = `/var/lib/docker/overlay2/${id}/merged`

const cases: [string, RegExp][] = [
  [
    `source ${store}/app/db.sqlite is not directory`,
    /^A volume cannot be mounted at \/app\/db\.sqlite, which is a file/,
  ],
  ['No command specified', /^The image says no command to run/],
  [`mkdir ${store}/a/b: not a directory`, /container: mkdir \/a\/b: not a directory$/],
  [`open /var/lib/docker/containers/${id}/config: denied`, /container: open a path of the engine: denied$/],
  [`endpoint slipway-aaaa-bbbb-0 of ${id} is busy`, /container: endpoint of the service of the container is busy$/],
]

test('what the engine refuses is a sentence without its paths, ids and our names', () => {
  for (const [message, expected] of cases) {
    const error = explainRefusal(new EngineError(500, message))
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, 'start_failed')
    assert.match(error.message, expected)
  }
})

test('a full disk, and errors without an answer of the engine, stay unchanged', () => {
  for (const error of [new EngineError(500, 'no space left on device'), new Error('away')])
    assert.equal(explainRefusal(error), error)
})
