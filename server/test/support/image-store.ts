/** An image store that lives in memory, for tests without a database. */

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
