/** The address of a bucket, as an operator writes it. Pure. */

const bucketName = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/
const prefixName = /^[A-Za-z0-9_][A-Za-z0-9._=+@/-]{0,200}$/

/** Null for a folder; throws one sentence for another address. Pure. */
export const parseBucket = (text: string): { bucket: string; prefix: string } | null => {
  if (!/^[a-z0-9]+:\/\//i.test(text)) return null
  const [, bucket = '', prefix = ''] = /^s3:\/\/([^/]+)(?:\/(.*?))?\/?$/.exec(text) ?? []
  if (!bucketName.test(bucket) || (prefix !== '' && !prefixName.test(prefix)))
    throw new Error(
      `${text.slice(0, 200)} must be a folder, or the address of a bucket: s3://bucket or s3://bucket/prefix`,
    )
  return { bucket, prefix: prefix === '' ? '' : `${prefix}/` }
}
