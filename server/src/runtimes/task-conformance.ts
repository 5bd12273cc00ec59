/** What every runtime guarantees of tasks: part of the conformance suite (conformance.ts). */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Handover } from '../lib/handover.ts'
import { newId } from '../lib/ids.ts'
import { Secret } from '../lib/secret.ts'
import { createTask, deploymentError, ignore, rejection, type Subject, signal, until } from './conformance.ts'
import type { Runtime } from './runtime.ts'

export const conformTasks = (runtime: () => Runtime, programs: Subject['programs']): void => {
  describe('tasks', () => {
    const left = { '/out/left.txt': 1024 }

    test('run gives the exit code and every line, and the same task id joins the one execution', async () => {
      const task = createTask(programs.task)
      const outputs: string[][] = [[], [], []]
      const [first, ...others] = await Promise.all(
        outputs.map((lines) => runtime().run(task, (line) => lines.push(line), signal())),
      )
      assert.deepEqual(first, { exitCode: 3, oomKilled: false })
      for (const other of others) assert.deepEqual(other, first)
      assert.deepEqual(outputs[0]!.slice(1), ['one', 'two'])
      for (const lines of outputs) assert.deepEqual(lines, outputs[0])
      assert.deepEqual(await runtime().observe([task]), [])
    })

    test('what a task left can be read until its end is called for, by whoever joins it later too', async () => {
      const task = createTask(programs.writer, {
        folders: ['/out'],
        files: new Secret([{ path: '/in/given', content: 'given' }]),
      })
      const paths = { '/out/left.txt': 1024, '/out/missing': 1024, '/out': 1024 }
      assert.equal(await runtime().readTask(task, paths, signal()), null)
      let starts = 0
      const beforeStart = async () => {
        starts += 1
      }
      for (let time = 0; time < 2; time += 1) {
        const lines: string[] = []
        const result = await runtime().run(task, (line) => lines.push(line), signal(), { beforeStart })
        assert.deepEqual(result, { exitCode: 0, oomKilled: false })
        assert.ok(lines.includes('given'), JSON.stringify([time, lines]))
        assert.deepEqual(await runtime().readTask(task, paths, signal()), { '/out/left.txt': 'left' })
      }
      assert.equal(starts, 1)
      const error = await deploymentError(runtime().readTask(task, { '/out/left.txt': 3 }, signal()))
      assert.equal(error.code, 'file_too_large')
      await runtime().endTask(task, signal())
      assert.equal(await runtime().readTask(task, paths, signal()), null)
    })

    test('a later try takes the place of an earlier one, and an execution that is gone is not begun again', async () => {
      const first = createTask(programs.writer, { folders: ['/out'] })
      await runtime().run(first, ignore, signal())
      const second = { ...first, attempt: 2, ...programs.task }
      assert.equal((await runtime().run(second, ignore, signal())).exitCode, 3)
      assert.equal((await runtime().run(first, ignore, signal())).exitCode, 3)
      await runtime().endTask(first, signal())
      const error = await deploymentError(runtime().run(first, ignore, signal(), { joinOnly: true }))
      assert.equal(error.code, 'task_gone')
    })

    test('a task that is stopped ends soon, and what it left can be read', async () => {
      const task = createTask(programs.endlessWriter, { folders: ['/out'] })
      const run = runtime().run(task, ignore, signal())
      await until('the file', async () => (await runtime().readTask(task, left, signal()))?.['/out/left.txt'] ?? null)
      await runtime().stopTask(task, 5000, signal())
      assert.notEqual((await run).exitCode, 0)
      assert.deepEqual(await runtime().readTask(task, left, signal()), { '/out/left.txt': 'begun' })
      await runtime().endTask(task, signal())
      await runtime().stopTask(task, 5000, signal())
    })

    test('a task that takes too long is ended and named so', async () => {
      const task = createTask(programs.endlessTask, { timeoutMs: 600 })
      const error = await deploymentError(runtime().run(task, ignore, signal()))
      assert.equal(error.code, 'task_timeout')
    })

    test('a task that nobody waits for is ended by its id, and ending what is not there succeeds', async () => {
      const task = createTask(programs.endlessTask)
      const controller = new AbortController()
      const run = rejection(runtime().run(task, ignore, controller.signal))
      controller.abort(new Error('left'))
      await run
      await runtime().endTask(task, signal())
      await runtime().endTask({ ...task, taskId: newId() }, signal())
      const own = (await runtime().owned()).instances.filter(({ taskId }) => taskId === task.taskId)
      assert.deepEqual(own, [])
    })

    test('a task whose wait is aborted goes on: who asks next joins it and gets its end', async () => {
      const task = createTask(programs.task)
      const handover = new AbortController()
      const begun = Promise.withResolvers<string>()
      const first = runtime()
        .run(task, begun.resolve, handover.signal)
        .catch(() => {})
      const line = await begun.promise
      handover.abort(new Handover())
      await first
      const lines: string[] = []
      const result = await runtime().run(task, (text) => lines.push(text), signal())
      assert.deepEqual(result, { exitCode: 3, oomKilled: false })
      assert.equal(lines[0], line)
    })

    test('an aborted task rejects promptly with the reason', async () => {
      const controller = new AbortController()
      const reason = new Error('canceled by the user')
      setTimeout(() => controller.abort(reason), 400)
      const task = createTask(programs.endlessTask)
      assert.equal(await rejection(runtime().run(task, ignore, controller.signal)), reason)
      await runtime().endTask(task, signal())
    })
  })
}
