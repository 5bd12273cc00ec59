import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createBuildLog } from './build-log.ts'

const open = () => {
  let shown = ''
  const log = createBuildLog([], (text) => {
    shown += text
  })
  return { log, shown: () => shown }
}

test('a line of 3 MB and a progress bar cost 16 kB of the log each, and what follows is shown', () => {
  const { log, shown } = open()
  log.write('Step 1/3 : RUN one\n')
  for (let count = 0; count < 300; count += 1) log.write('x'.repeat(10_000))
  log.write('\nStep 2/3 : RUN two\n')
  for (let count = 0; count < 300_000; count += 1) log.write(`\r${count} of 300000`)
  log.write('\nStep 3/3 : RUN three\ndone\n')
  log.end()
  assert.ok(shown().length < 2 * 16_384 + 200, `${shown().length}`)
  assert.equal(shown().match(/ … \(the rest of this line is left out\)\n/g)?.length, 2)
  assert.match(shown(), /\nStep 2\/3 : RUN two\n[\s\S]*\nStep 3\/3 : RUN three\ndone\n$/)
  assert.ok(
    shown()
      .split('\n')
      .every((line) => line.length <= 16_384),
  )
  assert.doesNotMatch(shown(), /log truncated/)
})

test('lines of any length come through whole up to the limit, however they are cut into chunks', () => {
  const lines = ['', 'a', 'b'.repeat(16_000), '', 'c'.repeat(3), '']
  const text = lines.join('\n')
  for (const size of [1, 7, 16_000, text.length]) {
    const { log, shown } = open()
    for (let at = 0; at < text.length; at += size) log.write(text.slice(at, at + size))
    log.end()
    assert.equal(shown(), text)
  }
})

test('an error has the end of a long line', () => {
  const { log } = open()
  log.write(`${'x'.repeat(50_000)} the reason`)
  log.end()
  assert.match(log.lastLines().at(-1)!, /x the reason$/)
})
