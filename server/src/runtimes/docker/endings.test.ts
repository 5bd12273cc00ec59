import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Engine, EngineError } from '../../lib/docker/docker-engine.ts'
import { removeContainer } from './endings.ts'

const engineThat = (...answers: (EngineError | null)[]) => {
  const asked: string[] = []
  const call = (async (method: string, path: string) => {
    asked.push(`${method} ${path}`)
    const answer = answers.shift() ?? null
    if (answer !== null) throw answer
  }) as Engine['call']
  return { call, asked }
}

test('a container that ends by itself while it is removed is removed; other refusals of the engine are reported', async () => {
  const raced = new EngineError(500, 'Could not kill running container 1, cannot remove - Container 1 is not running')
  const engine = engineThat(raced, null)
  await removeContainer(engine, '1')
  assert.deepEqual(engine.asked, ['DELETE /containers/1', 'DELETE /containers/1'])
  const busy = new EngineError(500, 'driver "overlay2" failed to remove root filesystem: device or resource busy')
  await assert.rejects(removeContainer(engineThat(busy), '1'), busy)
  await assert.rejects(removeContainer(engineThat(raced, raced), '1'), raced)
  await removeContainer(engineThat(new EngineError(404, 'No such container: 1')), '1')
})
