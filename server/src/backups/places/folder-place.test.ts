import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { createFolderPlace } from './folder-place.ts'
import { checkedName } from './place.ts'

const { signal } = new AbortController()

const all = async <T>(values: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const value of values) found.push(value)
  return found
}

const text = async (content: AsyncIterable<Uint8Array>): Promise<string> => Buffer.concat(await all(content)).toString()

async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const each of texts) yield Buffer.from(each)
}

const folderFor = (t: { after(end: () => void): void }): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-folder-place-'))
  t.after(() => rmSync(folder, { recursive: true }))
  return folder
}

test('names cannot leave the folder, and cannot be those of unfinished writes', () => {
  const bad = ['', '.', '..', '/a', 'a/', 'a//b', '../a', 'a/../b', 'a/./b', '.a', 'a/.b', 'a\\b', 'a\0b', 'a b', 'ä']
  for (const name of [...bad, 'a'.repeat(129), `${'a/'.repeat(200)}a`])
    assert.throws(() => checkedName(name), /relative path/, JSON.stringify(name))
  for (const name of ['a', 'a/b.c', 'A_1=+@-/x..']) assert.equal(checkedName(name), name)
})

test('files and folders are readable by the server alone, and empty folders go with the last file', async (t) => {
  const folder = folderFor(t)
  const place = createFolderPlace(join(folder, 'deep/er'))
  assert.deepEqual(await place.put('a/b/c', pieces('one', 'two'), signal), { bytes: 6 })
  assert.equal(statSync(join(folder, 'deep/er/a/b/c')).mode & 0o777, 0o600)
  for (const each of ['deep', 'deep/er', 'deep/er/a/b']) assert.equal(statSync(join(folder, each)).mode & 0o777, 0o700)
  await place.remove('a/b/c', signal)
  assert.deepEqual(readdirSync(join(folder, 'deep/er')), [])
})

test('a link is not followed', async (t) => {
  const folder = folderFor(t)
  symlinkSync('/etc/passwd', join(folder, 'link'))
  const place = createFolderPlace(folder)
  await assert.rejects(place.get('link', signal), { code: 'missing' })
  assert.deepEqual(await all(place.list('', signal)), [])
})

test('a write whose process was killed is not listed, and is removed when it has not grown for a day', async (t) => {
  const folder = folderFor(t)
  const place = createFolderPlace(folder)
  await place.put('kept', pieces('kept'), signal)
  const [fresh, old] = ['.00112233445566aa.part', '.00112233445566bb.part'].map((name) => join(folder, name))
  for (const part of [fresh!, old!]) writeFileSync(part, 'half')
  const before = Date.now() / 1000 - 25 * 3600
  for (const path of [old!, join(folder, 'kept')]) utimesSync(path, before, before)
  assert.deepEqual(
    (await all(place.list('', signal))).map(({ name, bytes }) => ({ name, bytes })),
    [{ name: 'kept', bytes: 4 }],
  )
  await place.tidy(signal)
  assert.deepEqual(readdirSync(folder).sort(), ['.00112233445566aa.part', 'kept'])
  assert.equal(await text(await place.get('kept', signal)), 'kept')
})

const half = `
  import { createFolderPlace } from ${JSON.stringify(new URL('./folder-place.ts', import.meta.url).href)}
  const content = (async function* () {
    yield Buffer.alloc(100_000)
    process.stdout.write('half')
    await new Promise((resolve) => setInterval(resolve, 1 << 30))
  })()
  await createFolderPlace(process.argv[1]).put('a/b', content, new AbortController().signal)`

test('a process that is killed in the middle of a write leaves nothing that is listed or read', async (t) => {
  const folder = folderFor(t)
  const child = spawn(process.execPath, ['--input-type=module', '-e', half, folder])
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await once(child, 'exit')
  const place = createFolderPlace(folder)
  assert.deepEqual(await all(place.list('', signal)), [])
  await assert.rejects(place.get('a/b', signal), { code: 'missing' })
  assert.equal(readdirSync(join(folder, 'a')).length, 1)
  await place.put('a/b', pieces('whole'), signal)
  assert.equal(await text(await place.get('a/b', signal)), 'whole')
})

const asRoot = process.getuid?.() === 0 ? false : 'only root may mount a small disk'

test('a disk that is full, or would be, is named, and leaves nothing', { skip: asRoot }, async (t) => {
  const folder = folderFor(t)
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', folder])
  try {
    const megabyte = Buffer.alloc(2 ** 20, 'x').toString()
    const full = createFolderPlace(folder)
    await full.put('before', pieces(megabyte), signal)
    await assert.rejects(full.put('a/large', pieces(...Array(9).fill(megabyte)), signal), {
      name: 'PlaceError',
      code: 'full',
      message: /disk of the backup folder is full/,
    })
    assert.deepEqual(await all(full.list('a/', signal)), [])
    assert.deepEqual(
      readdirSync(folder, { recursive: true }).filter((name) => String(name).includes('.part')),
      [],
    )
    const reserved = createFolderPlace(folder, { reserveBytes: 8 * 2 ** 20 })
    await assert.rejects(reserved.put('small', pieces('x'), signal), { code: 'full' })
    await full.put('after', pieces(megabyte), signal)
    assert.equal(await text(await full.get('before', signal)), megabyte)
  } finally {
    execFileSync('umount', [folder])
  }
})
