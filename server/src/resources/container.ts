/** Containers: run from an image of a registry, on the environment's cluster. */
import Type from 'typebox'
import type { Context } from '../api/operation.ts'
import type { Change } from '../api/resource.ts'
import { Flag, Maybe } from '../api/schema.ts'
import { advancedSettings } from '../facets/advanced-settings.ts'
import { customDomains } from '../facets/custom-domain.ts'
import { deployable } from '../facets/deployable.ts'
import { history } from '../facets/history.ts'
import { serviceLinks } from '../facets/links.ts'
import { logs } from '../facets/logs.ts'
import { releases } from '../facets/releases.ts'
import { MaybeImageTag } from '../facets/request.ts'
import { containerSettings } from '../facets/settings.ts'
import { autoDeploy } from './auto-deploy.ts'
import { ImageRequest, type ImageSpec, imageSourceOf, Registry, registrySql } from './image-source.ts'
import { completeRunning, Running, type RunningRequest, type RunningSpec, workloadOf } from './running.ts'
import { type Filled, service } from './service.ts'
import { Healthchecks } from './service-parts.ts'

const spec = Type.Object({ ...Running(), ...ImageRequest(), auto_preview: Maybe(Flag({ default: false })) })

const complete = async (
  body: Filled<typeof spec, RunningRequest>,
  context: Context,
  change: Change<RunningSpec & ImageSpec>,
) => {
  const { image_name, tag, registry_id } = body
  return { ...(await completeRunning(body, context, change)), image_name, tag, registry_id }
}

export const container = service({
  kind: 'container',
  path: 'container',
  word: 'Container',
  words: 'a container',
  list: { id: 'listContainer', words: 'containers' },
  spec,
  record: { registry: Registry(), healthchecks: Healthchecks() },
  columns: { registry: registrySql([]) },
  validate: complete,
  facets: [
    deployable({ deployBody: Type.Object({ image_tag: MaybeImageTag() }) }),
    history,
    releases,
    logs,
    serviceLinks,
    advancedSettings(containerSettings),
    customDomains(),
    autoDeploy([]),
  ],
  deployable: {
    source: imageSourceOf,
    workload: workloadOf,
  },
})
