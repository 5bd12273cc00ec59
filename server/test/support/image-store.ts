/** An image store that lives in memory, for tests without a database. */

import type { CacheStore, KnownCache } from '../../src/builds/cache-store.ts'
import type { ImageOwner, ImageStore, StoredImage } from '../../src/builds/image-store.ts'
import { newId } from '../../src/lib/ids.ts'

export const createMemoryStore = () => {
  const images = new Map<string, StoredImage & { owner: ImageOwner | null }>()
  const steps = new Map<string, string>()
  const bases = new Map<string, string>()
  const secrets = new Map<string, string>()
  const store: ImageStore = {
    async find({ organizationId, clusterId }, key) {
      const found = images.get(key)
      return found?.owner?.organizationId === organizationId && found.owner.clusterId === clusterId ? found : null
    },
    save: async (owner, key, image) => void images.set(key, { ...image, owner }),
    owns: async (organizationId, imageId) =>
      [...images.values()].some((each) => each.owner?.organizationId === organizationId && each.imageId === imageId),
    findStep: async (key) => steps.get(key) ?? null,
    saveStep: async (_, key, imageId) => void steps.set(key, imageId),
    findBase: async (organizationId, name) => bases.get(`${organizationId} ${name}`) ?? null,
    saveBase: async (organizationId, name, imageId) => void bases.set(`${organizationId} ${name}`, imageId),
    async cacheSecret(organizationId) {
      const secret = secrets.get(organizationId) ?? newId().replaceAll('-', '')
      secrets.set(organizationId, secret)
      return secret
    },
  }
  return { store, contentKeys: () => [...images.keys()], stepIds: () => [...steps.values()] }
}

/** Likewise of caches; `age` makes them unused for so many days. */
export const createMemoryCaches = () => {
  const known = new Map<string, KnownCache & { clusterId: string }>()
  const holders = new Map<string, string>()
  const store: CacheStore = {
    async use({ organizationId, clusterId }, volume) {
      const { sizeKb } = known.get(volume) ?? { sizeKb: 0 }
      known.delete(volume)
      known.set(volume, { volume, organizationId, clusterId, sizeKb, idleDays: 0, isOrphan: false })
    },
    async hold(volume, holder) {
      if ((holders.get(volume) ?? holder) !== holder) return false
      holders.set(volume, holder)
      return true
    },
    async free(volume, holder) {
      if (holders.get(volume) === holder) holders.delete(volume)
    },
    measure: async (volume, sizeKb) => void known.set(volume, { ...known.get(volume)!, sizeKb }),
    list: async (clusterId) => [...known.values()].filter((each) => each.clusterId === clusterId),
    forget: async (volume) => void known.delete(volume),
  }
  return {
    store,
    volumes: () => [...known.keys()],
    sizes: () => [...known.values()].map(({ sizeKb }) => sizeKb),
    age(days: number): void {
      for (const each of known.values()) each.idleDays = days
    },
  }
}
