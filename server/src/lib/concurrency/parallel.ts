/** Runs `work` over `items`, at most `parallel` at once; rejects with the first rejection after all have ended. */
export const forEachParallel = async <T>(
  parallel: number,
  items: readonly T[],
  work: (item: T) => Promise<void>,
): Promise<void> => {
  const queue = [...items]
  const failures: unknown[] = []
  const lane = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift())
      await work(item).catch((error: unknown) => failures.push(error))
  }
  await Promise.all(Array.from({ length: Math.min(parallel, items.length) }, lane))
  if (failures.length > 0) throw failures[0]
}
