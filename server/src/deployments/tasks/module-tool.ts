/**
 * Running a module of the operator as a task of this machine's engine: its image, its files, and the meaning of its
 * result.
 */
import { readToolScript } from '../../builds/tools.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { filesOf, inputsFor, type ToolModule } from '../../clusters/modules.ts'
import { joinTag, splitTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { repositoryOf } from '../credentials/registry-image.ts'
import type { TaskCommand } from '../deployments.ts'

const minute = 60_000
/** An image of 100 MB may be slow to download. */
export const toolImageMs = 61 * minute
/** Operations at a provider are waited for: after a forced end, resources may exist that no state lists. */
export const moduleGraceMs = 5 * minute

/** With its registry's host. */
const referenceOf = (image: string): string => {
  const { name, tag } = splitTag(image)
  const hasHost = /^([^/]*[.:][^/]*|localhost)\//.test(name)
  return joinTag(hasHost ? name : repositoryOf(null, name), tag)
}

/** The image that a module runs in. Rejects with a `DeploymentError`. */
export const holdToolImage = (
  { builder, images, isConnected }: Cluster,
  organizationId: string,
  { image, engine }: ToolModule,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<string> => {
  if (isConnected && image !== undefined) {
    const wanted = { organizationId, reference: referenceOf(image), origin: null, login: null, refresh: true }
    return images.hold(wanted, say, signal)
  }
  if (!isConnected || builder.toolImage === undefined)
    throw new DeploymentError('build', 'This server has no engine that the tool could run on.')
  return builder.toolImage(engine, signal)
}

const scriptPath = '/slipway-input/module.sh'

export type ModuleVerb = 'apply' | 'plan' | 'destroy'

export const moduleCommand = ({ engine }: ToolModule, verb: ModuleVerb): TaskCommand => ({
  entrypoint: ['/bin/sh', scriptPath],
  arguments: [verb, engine, '.', 'here'],
})

/** The complete input of a module's run. Rejects with `module_refused`. */
export const moduleFiles = async (module: ToolModule, document: object) => {
  const inputs = inputsFor(module, document)
  return [
    ...(await filesOf(module, inputs)),
    { path: scriptPath, content: await readToolScript() },
    { path: '/slipway-input/variables.tfvars.json', content: JSON.stringify(inputs) },
  ]
}

/** The tool's explanation: the first of its errors. */
const errorIn = (lines: readonly string[]): string | undefined =>
  lines.map((line) => /^\W*Error: (.+)$/.exec(line)?.[1]).find((found) => found !== undefined)

/** The end of a task, with the tool's explanation. */
export const toolFailure = (error: DeploymentError): DeploymentError => {
  const { code, message, lines } = error
  if (code === 'task_timeout') return new DeploymentError(code, message.replace('The task', 'The tool'), { lines })
  if (code !== 'task_failed') return error
  const found = errorIn(lines)
  const said = found === undefined ? message.replace('The job', 'The tool') : `The tool has failed: ${found}`
  return new DeploymentError(code, said, { lines })
}
