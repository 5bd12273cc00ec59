import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { type Header, pack } from 'tar-stream'
import { fileOfChart, maxChartBytes, packChart, repackChart } from './archive.ts'

const archiveOf = async (entries: [Partial<Header> & { name: string }, string | Buffer][]): Promise<Buffer> => {
  const archive = pack()
  for (const [header, content] of entries) archive.entry(header as Header, content)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return gzipSync(Buffer.concat(chunks))
}
const facts: [{ name: string }, string] = [{ name: 'shop/Chart.yaml' }, 'name: shop\n']
const bomb = Buffer.alloc(maxChartBytes + 1)

test('a chart is packed again from its files alone, and the same files make the same archive', async () => {
  const inner = await archiveOf([[{ name: 'common/Chart.yaml' }, 'name: common\n']])
  const first = await repackChart(
    await archiveOf([
      [{ name: 'shop/charts/common-1.tgz' }, inner],
      facts,
      [{ name: 'shop/values.yaml', mtime: new Date(5), mode: 0o777 }, 'a: 1\n'],
    ]),
  )
  assert.equal(await fileOfChart(first, 'values.yaml'), 'a: 1\n')
  assert.equal(await fileOfChart(first, 'none.yaml'), null)
  assert.deepEqual(await repackChart(first), first)
  const packed = await packChart([{ path: 'Chart.yaml', content: Buffer.from('name: shop\n') }])
  assert.equal(await fileOfChart(packed, 'Chart.yaml'), 'name: shop\n')
  await assert.rejects(packChart([]), /no Chart\.yaml/)
})

test('anything but plain files of one folder, or more than allowed, is refused in a sentence', async () => {
  const nested = await archiveOf([[{ name: 'a/../../../etc/passwd' }, 'x']])
  const cases: [Buffer | Promise<Buffer>, RegExp][] = [
    [archiveOf([facts, [{ name: 'shop/../../etc/passwd' }, 'x']]), /leaves its folder/],
    [archiveOf([facts, [{ name: '/etc/passwd' }, 'x']]), /is absolute/],
    [archiveOf([facts, [{ name: 'shop/link', type: 'symlink', linkname: 'Chart.yaml' }, '']]), /has a link/],
    [archiveOf([facts, [{ name: 'shop/out', type: 'symlink', linkname: '../../x' }, '']]), /leads out of its folder/],
    [archiveOf([facts, [{ name: 'shop/hard', type: 'link', linkname: 'shop/Chart.yaml' }, '']]), /hard links/],
    [archiveOf([facts, [{ name: 'other/values.yaml' }, 'x']]), /one folder with a Chart\.yaml/],
    [archiveOf([[{ name: 'shop/values.yaml' }, 'x']]), /one folder with a Chart\.yaml/],
    [archiveOf([facts, [{ name: 'shop/big' }, bomb]]), /more than 2000 files or 20 MiB/],
    [
      archiveOf([
        facts,
        ...Array.from({ length: 2001 }, (_, index): [{ name: string }, string] => [{ name: `shop/${index}` }, '']),
      ]),
      /more than 2000 files/,
    ],
    [archiveOf([facts, [{ name: 'shop/charts/x.tgz' }, nested]]), /leaves its folder/],
    [Buffer.alloc(5 << 20), /larger than 4 MiB/],
    [Buffer.from('<html>'), /not a complete gzip file/],
    [gzipSync('not tar'), /damaged or is not a tar archive/],
    [archiveOf([facts]).then((archive) => archive.subarray(0, 60)), /not a complete gzip file|damaged/],
  ]
  for (const [archive, sentence] of cases)
    await assert.rejects(repackChart(await archive), (error: Error) => {
      assert.match(error.message, sentence)
      return true
    })
})
