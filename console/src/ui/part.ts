const pausesMs = [300, 1500]

/** Loads a part of the console, again when the connection broke: browsers end all of them when the network changes. */
export const part =
  <T>(load: () => Promise<T>) =>
  async (): Promise<T> => {
    for (const ms of pausesMs)
      try {
        return await load()
      } catch {
        await new Promise((resolve) => setTimeout(resolve, ms))
      }
    return load()
  }
