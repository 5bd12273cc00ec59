/** The same bytes in pieces of one size; only the last one may be shorter. Nothing for an empty stream. */
export async function* rechunk(source: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Buffer> {
  let piece = Buffer.allocUnsafe(size)
  let filled = 0
  for await (const chunk of source)
    for (let at = 0; at < chunk.length; ) {
      const taken = Math.min(size - filled, chunk.length - at)
      piece.set(chunk.subarray(at, at + taken), filled)
      filled += taken
      at += taken
      if (filled < size) continue
      yield piece
      piece = Buffer.allocUnsafe(size)
      filled = 0
    }
  if (filled > 0) yield piece.subarray(0, filled)
}
