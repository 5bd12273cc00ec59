/** A builder whose clusters all are one engine, as of a server with the engine of its own machine. */
import { join } from 'node:path'
import type { Builder } from '../../../src/builds/builder.ts'
import { createBuilder as createOver } from '../../../src/builds/git-builder.ts'
import { createImageBuilder, type ImageBuilderParts } from '../../../src/builds/image-builder.ts'
import { createSources, type SourceParts } from '../../../src/builds/sources.ts'
import { missingTool, toolVersions } from '../../../src/builds/tools.ts'
import { createOutbound, type Outbound } from '../../../src/lib/net/outbound.ts'

/** Without `outbound`, only loopback can be reached. */
export type OneBuilderParts = Omit<ImageBuilderParts, 'preparation' | 'folder' | 'outbound'> &
  SourceParts & { outbound?: Outbound | undefined }

export const createBuilder = (parts: OneBuilderParts): Builder => {
  const sources = createSources(parts)
  const folder = join(parts.dataDir, 'builds')
  const outbound = parts.outbound ?? createOutbound({ allow: ['loopback'] })
  const images = createImageBuilder({ ...parts, outbound, folder, preparation: sources.prepare() })
  const builder = createOver({
    sources,
    missingTool: (name) => missingTool(name, parts.tools ?? {}),
    toolVersions: () => toolVersions(parts.tools ?? {}),
    imageBuilder: async () => images,
  })
  const close = async (): Promise<void> => {
    await images.close()
    await builder.close()
  }
  return { ...builder, close }
}
