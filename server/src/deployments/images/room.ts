/** Builds only if there is room for another image: one that already exists needs none. */
import type { Builder } from '../../builds/builder.ts'
import type { Disk } from '../../limits/disk.ts'

export const withRoom = (builder: Builder, disk: Pick<Disk, 'refuseImage'>): Builder => ({
  ...builder,
  async build(request, onLog, signal) {
    try {
      await disk.refuseImage(request.organizationId, signal)
    } catch (error) {
      if (signal.aborted || (await builder.built(request, signal)) === null) throw error
    }
    return builder.build(request, onLog, signal)
  },
})
