/** What every runtime guarantees of tasks: part of the conformance suite. */
import assert from 'node:assert/strict'
import { buffer } from 'node:stream/consumers'
import { describe, test } from 'node:test'
import { newId } from '../../../src/lib/ids.ts'
import { LeaseHandedOff } from '../../../src/lib/lease-handed-off.ts'
import { Secret } from '../../../src/lib/secret.ts'
import type { OutputPlace, TaskOutput } from '../../../src/runtimes/runtime.ts'
import {
  createTask,
  deploymentError,
  ignore,
  rejection,
  type Subject,
  type Suite,
  signal,
  until,
} from './conformance.ts'

const endless = new Promise<never>(() => {})

export const conformTasks = ({ runtime, streamsFiles }: Suite, programs: Subject['programs']): void => {
  describe('tasks', () => {
    const left: TaskOutput = { path: '/out/left.txt', maxBytes: 1024 }
    const given = new Secret([{ path: '/in/given', content: 'given' }])
    const plain = { oomKilled: false, timedOut: false, outputs: {} }

    test('run returns the exit code and every line, and the same task id attaches to the one execution', async () => {
      const task = createTask(programs.task)
      const outputs: string[][] = [[], [], []]
      const [first, ...others] = await Promise.all(
        outputs.map((lines) => runtime().run(task, (line) => lines.push(line), signal())),
      )
      assert.deepEqual(first, { ...plain, exitCode: 3 })
      for (const other of others) assert.deepEqual(other, first)
      assert.deepEqual(outputs[0]!.slice(1), ['one', 'two'])
      for (const lines of outputs) assert.deepEqual(lines, outputs[0])
      assert.deepEqual(await runtime().observe([task]), [])
    })

    test('run returns the outputs of the task, also to later callers, until endTask is called', async () => {
      const others = ['/out/missing', ...(streamsFiles ? ['/out'] : [])].map((path) => ({ path, maxBytes: 1024 }))
      const outputs = [left, ...others]
      const task = createTask(programs.writer, { files: given, outputs })
      const key = { ...task, outputs: [left] }
      assert.equal(await runtime().stopTask(key, 0, signal()), null)
      let marks = 0
      const mark = async () => {
        marks += 1
      }
      for (const marked of [false, true]) {
        const lines: string[] = []
        const end = await runtime().run(task, (line) => lines.push(line), signal(), { marked, mark })
        assert.deepEqual(end, { ...plain, exitCode: 0, outputs: { '/out/left.txt': { text: 'left' } } })
        assert.ok(lines.includes('given'), JSON.stringify(lines))
      }
      assert.equal(marks, 1)
      assert.deepEqual(await runtime().stopTask(key, 0, signal()), { '/out/left.txt': { text: 'left' } })
      await runtime().endTask(task, signal())
      assert.equal(await runtime().stopTask(key, 0, signal()), null)
    })

    test('an output that is too large is reported, and does not affect the others', async () => {
      const small = { path: '/in/given', maxBytes: 5 }
      const wanted = [{ ...left, maxBytes: 3 }, ...(streamsFiles ? [small] : [])]
      const task = createTask(programs.writer, { files: given, outputs: wanted })
      const { outputs } = await runtime().run(task, ignore, signal())
      const refused = outputs['/out/left.txt']!
      assert.ok('error' in refused && refused.error.code === 'file_too_large')
      if (streamsFiles) assert.deepEqual(outputs['/in/given'], { text: 'given' })
      await runtime().endTask(task, signal())
    })

    const streams = 'an output goes to its place as a stream, as large as it may be, in its time, and of good ends only'
    if (!streamsFiles)
      test('a task with a stream, or files of several folders, is refused before it starts', async () => {
        for (const outputs of [
          [left, { path: '/other/more', maxBytes: 1 }],
          [{ ...left, stream: { to: async () => {}, deadlineMs: 1000 } }],
        ]) {
          const task = createTask(programs.writer, { files: given, outputs })
          const error = await deploymentError(runtime().run(task, ignore, signal()))
          assert.equal(error.code, 'task_unsupported')
          assert.equal(await runtime().stopTask({ ...task, outputs: [] }, 0, signal()), null)
        }
      })
    else
      test(streams, async () => {
        const taken: string[] = []
        const take: OutputPlace = async (bytes) => void taken.push((await buffer(bytes)).toString())
        const streamTo = (to: OutputPlace, more: object = {}): TaskOutput[] => [
          { ...left, ...more, stream: { to, deadlineMs: 'maxBytes' in more ? 5000 : 300 } },
        ]
        const task = createTask(programs.writer, { files: given })
        const give = (outputs: TaskOutput[]) => runtime().run({ ...task, outputs }, ignore, signal())
        assert.deepEqual((await give(streamTo(take, { maxBytes: 4 }))).outputs, { '/out/left.txt': { bytes: 4 } })
        const errorOf = async (outputs: TaskOutput[]) => {
          const one = (await give(outputs)).outputs['/out/left.txt']!
          return 'error' in one ? one.error.code : one
        }
        assert.equal(await errorOf(streamTo(take, { maxBytes: 3 })), 'file_too_large')
        assert.equal(await errorOf(streamTo(() => endless)), 'output_timeout')
        const full = new Error('no room')
        assert.equal(await rejection(give(streamTo(() => Promise.reject(full)))), full)
        assert.deepEqual((await give(streamTo(take, { maxBytes: 4 }))).outputs, { '/out/left.txt': { bytes: 4 } })
        await runtime().endTask(task, signal())
        const bad = createTask(programs.badWriter, { outputs: streamTo(take, { maxBytes: 1024 }) })
        assert.deepEqual(await runtime().run(bad, ignore, signal()), { ...plain, exitCode: 3 })
        await runtime().endTask(bad, signal())
        assert.deepEqual(taken, ['left', 'left'])
      })

    test('tasks of a service see its volumes', async () => {
      const volumes = [{ id: newId(), mountPath: '/in', sizeGb: 1 }]
      const first = createTask(programs.keeper, { volumes })
      const told: string[] = []
      await runtime().run(first, (line) => told.push(line), signal())
      assert.ok(!told.includes('kept'), JSON.stringify(told))
      await runtime().endTask(first, signal())
      const lines: string[] = []
      const second = { ...first, taskId: newId() }
      await runtime().run(second, (line) => lines.push(line), signal())
      assert.ok(lines.includes('kept'), JSON.stringify(lines))
      await runtime().converge(second, { state: 'absent', graceMs: 0 }, null, signal())
    })

    test('a later attempt replaces an earlier one, and a lost one is not started again', async () => {
      const first = createTask(programs.writer, { files: given, outputs: [left] })
      await runtime().run(first, ignore, signal())
      const second = { ...first, attempt: 2, ...programs.task }
      assert.equal((await runtime().run(second, ignore, signal())).exitCode, 3)
      assert.equal((await runtime().run(first, ignore, signal())).exitCode, 3)
      await runtime().endTask(first, signal())
      const once = { marked: true, mark: async () => {} }
      assert.equal((await deploymentError(runtime().run(first, ignore, signal(), once))).code, 'task_gone')
    })

    test('a stopped task ends soon, and returns its outputs', async () => {
      const task = createTask(programs.endlessWriter, { outputs: [left] })
      const lines: string[] = []
      const run = runtime().run(task, (line) => lines.push(line), signal())
      await until('the file', () => lines.length > 0 || null)
      assert.deepEqual(await runtime().stopTask(task, 5000, signal()), { '/out/left.txt': { text: 'begun' } })
      const { exitCode, outputs } = await run
      assert.notEqual(exitCode, 0)
      assert.deepEqual(outputs, { '/out/left.txt': { text: 'begun' } })
      await runtime().endTask(task, signal())
    })

    test('a task that takes too long is stopped, and its result says so', async () => {
      const task = createTask(programs.endlessTask, { timeoutMs: 600 })
      assert.equal((await runtime().run(task, ignore, signal())).timedOut, true)
    })

    test('a task without a waiting caller is ended by id, and ending a missing one succeeds', async () => {
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

    test('a task whose wait is aborted continues: the next caller attaches to it and gets its result', async () => {
      const task = createTask(programs.task)
      const handover = new AbortController()
      const begun = Promise.withResolvers<string>()
      const first = runtime()
        .run(task, begun.resolve, handover.signal)
        .catch(() => {})
      const line = await begun.promise
      handover.abort(new LeaseHandedOff())
      await first
      const lines: string[] = []
      const result = await runtime().run(task, (text) => lines.push(text), signal())
      assert.deepEqual(result, { ...plain, exitCode: 3 })
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
