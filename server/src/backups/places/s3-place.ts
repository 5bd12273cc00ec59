/**
 * Backups in a bucket of an S3-compatible storage. An object appears there when it is complete; parts of an upload whose
 * process died are in no list of objects, and are aborted when none has been added for a day.
 */
import { checkedName, checkedPrefix, leftoverAfterMs, type Place, PlaceError, type Stored } from './place.ts'
import { createS3Client, type S3Client, type S3Parts, type S3Settings } from './s3-client.ts'
import { explainConnection } from './s3-errors.ts'
import { etagCheckOf } from './s3-etag.ts'
import { createS3Upload } from './s3-upload.ts'
import { elementsOf, textOf } from './s3-xml.ts'

interface Bucket {
  parts: S3Parts
  client: S3Client
  /** Before every name. */
  prefix: string
}

/** Connections that break in a row, without a byte between them. */
const mostBreaks = 5

/** A million entries; a storage that never comes to an end is refused. */
const mostPages = 1000

const isName = (text: string): boolean => {
  try {
    return checkedName(text) === text
  } catch {
    return false
  }
}

const put = async (
  { parts, client, prefix }: Bucket,
  name: string,
  content: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<{ bytes: number }> => {
  const key = prefix + checkedName(name)
  signal.throwIfAborted()
  const upload = createS3Upload({ parts, client, key }, signal)
  try {
    for await (const chunk of content) {
      signal.throwIfAborted()
      await upload.write(chunk)
    }
    return { bytes: await upload.end() }
  } catch (error) {
    await upload.abort()
    throw error
  }
}

interface Head {
  key: string
  bytes: number
  headers: Readonly<Record<string, string>>
}

/** Continues where a connection broke, as long as the object is the same one. */
async function* download({ parts, client }: Bucket, head: Head, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const { key, bytes } = head
  const check = etagCheckOf(head.headers, bytes)
  let done = 0
  let breaks = 0
  while (done < bytes) {
    try {
      const headers: Record<string, string> = head.headers.etag === undefined ? {} : { 'if-match': head.headers.etag }
      if (done > 0) headers.range = `bytes=${done}-`
      const answer = await client.open({ method: 'GET', key, headers, signal }, bytes - done)
      if (done > 0 && answer.status !== 206) {
        answer.body.destroy()
        throw new PlaceError('refused', 'The storage does not send the rest of an object after a break.')
      }
      for await (const chunk of answer.body as AsyncIterable<Buffer>) {
        done += chunk.length
        breaks = 0
        check.update(chunk)
        yield chunk
      }
      if (done < bytes) throw new PlaceError('unreachable', 'The connection to the storage broke.')
    } catch (error) {
      signal.throwIfAborted()
      const problem = explainConnection(error)
      breaks += 1
      if (!(problem instanceof PlaceError) || problem.code !== 'unreachable' || breaks === mostBreaks) throw problem
      await parts.clock.sleep(1000 * 2 ** (breaks - 1), signal)
    }
  }
  check.end()
}

const get = async (bucket: Bucket, name: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> => {
  const key = bucket.prefix + checkedName(name)
  const { headers } = await bucket.client.ask({ method: 'HEAD', key, signal })
  const bytes = Number(headers['content-length'])
  if (!Number.isSafeInteger(bytes)) throw new PlaceError('refused', 'The storage does not tell the size of an object.')
  return download(bucket, { key, bytes, headers }, signal)
}

/** All pages of a list; `next` is the query of the following one, or null. */
async function* pages(
  { client }: Bucket,
  asked: { key?: string; query: Record<string, string> },
  next: (body: string) => Record<string, string> | null,
  signal: AbortSignal,
): AsyncGenerator<string> {
  let more: Record<string, string> | null = {}
  for (let page = 0; more !== null; page++) {
    if (page === mostPages) throw new PlaceError('refused', 'The storage lists more than a million objects.')
    const { body } = await client.ask({ method: 'GET', ...asked, query: { ...asked.query, ...more }, signal })
    yield body
    more = textOf(body, 'IsTruncated') === 'true' ? next(body) : null
  }
}

const nextObjects = (body: string): Record<string, string> | null => {
  const token = textOf(body, 'NextContinuationToken')
  return token === undefined ? null : { 'continuation-token': token }
}

const timeOf = (text: string | undefined): Date | null => {
  const time = new Date(text ?? '')
  return Number.isNaN(time.getTime()) ? null : time
}

async function* list(bucket: Bucket, prefix: string, signal: AbortSignal): AsyncGenerator<Stored> {
  const query = { 'list-type': '2', 'max-keys': '1000', prefix: bucket.prefix + checkedPrefix(prefix) }
  for await (const body of pages(bucket, { query }, nextObjects, signal))
    for (const entry of elementsOf(body, 'Contents')) {
      const name = (textOf(entry, 'Key') ?? '').slice(bucket.prefix.length)
      const [bytes, at] = [Number(textOf(entry, 'Size')), timeOf(textOf(entry, 'LastModified'))]
      // What others have put beside ours may have any name.
      if (isName(name) && name.startsWith(prefix) && Number.isSafeInteger(bytes) && at !== null)
        yield { name, bytes, at: at.toISOString() }
    }
}

const nextUploads = (body: string): Record<string, string> | null => {
  const [key, id] = [textOf(body, 'NextKeyMarker'), textOf(body, 'NextUploadIdMarker')]
  return key === undefined || id === undefined ? null : { 'key-marker': key, 'upload-id-marker': id }
}

const nextParts = (body: string): Record<string, string> | null => {
  const number = textOf(body, 'NextPartNumberMarker')
  return number === undefined ? null : { 'part-number-marker': number }
}

/** When its last part arrived, or null if it has none. */
const lastPart = async (bucket: Bucket, key: string, id: string, signal: AbortSignal): Promise<number | null> => {
  let last: number | null = null
  for await (const body of pages(bucket, { key, query: { uploadId: id } }, nextParts, signal))
    for (const part of elementsOf(body, 'Part')) {
      const at = timeOf(textOf(part, 'LastModified'))
      if (at !== null) last = Math.max(last ?? 0, at.getTime())
    }
  return last
}

const tidy = async (bucket: Bucket, signal: AbortSignal): Promise<void> => {
  const before = bucket.parts.clock.now().getTime() - leftoverAfterMs
  const query = { uploads: '', 'max-uploads': '1000', prefix: bucket.prefix }
  for await (const body of pages(bucket, { query }, nextUploads, signal))
    for (const upload of elementsOf(body, 'Upload')) {
      const [key = '', id = ''] = [textOf(upload, 'Key'), textOf(upload, 'UploadId')]
      const begun = timeOf(textOf(upload, 'Initiated'))
      if (!key.startsWith(bucket.prefix) || id === '' || begun === null || begun.getTime() > before) continue
      if (((await lastPart(bucket, key, id, signal)) ?? 0) > before) continue
      await bucket.client.ask({ method: 'DELETE', key, query: { uploadId: id }, signal })
    }
}

const remove = async ({ client, prefix }: Bucket, name: string, signal: AbortSignal): Promise<void> => {
  try {
    await client.ask({ method: 'DELETE', key: prefix + checkedName(name), signal })
  } catch (error) {
    if (!(error instanceof PlaceError) || error.code !== 'missing') throw error
  }
}

export const createS3Place = (parts: S3Parts, settings: S3Settings): Place => {
  const bucket = { parts, client: createS3Client(parts, settings), prefix: settings.prefix }
  return {
    put: (name, content, signal) => put(bucket, name, content, signal),
    get: (name, signal) => get(bucket, name, signal),
    list: (prefix, signal) => list(bucket, prefix, signal),
    remove: (name, signal) => remove(bucket, name, signal),
    tidy: (signal) => tidy(bucket, signal),
  }
}
