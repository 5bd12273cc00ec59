/** Containers: run from an image of a registry, on the environment's cluster. */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Change } from '../../api/operations/resource.ts'
import { Flag, Maybe, Recorded } from '../../api/operations/schema.ts'
import { deployable } from '../../facets/deployable.ts'
import { MaybeImageTag } from '../../facets/deployment-request.ts'
import { customDomains } from '../../facets/domains/custom-domain.ts'
import { serviceLinks } from '../../facets/domains/links.ts'
import { history } from '../../facets/history.ts'
import { logs } from '../../facets/logs.ts'
import { releases } from '../../facets/releases.ts'
import { advancedSettings } from '../../facets/settings/advanced-settings.ts'
import { containerSettings } from '../../facets/settings/settings.ts'
import { autoDeploy } from '../service/auto-deploy.ts'
import { ImageRequest, type ImageSpec, imageSourceOf, Registry, registrySql } from '../service/image-source.ts'
import { Healthchecks, noPreviews } from '../service/parts.ts'
import {
  completeRunning,
  Running,
  type RunningRequest,
  type RunningSpec,
  sizeFields,
  workloadOf,
} from '../service/running.ts'
import { type Filled, service } from '../service/service.ts'

const spec = Type.Object({
  ...Running(),
  ...ImageRequest(),
  auto_preview: Maybe(Recorded(Flag({ default: false }), noPreviews)),
})

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
  noun: 'Container',
  nounWithArticle: 'a container',
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
    sizeFields,
  },
})
