/** The versions that a Terraform service can run without an image of its own: those of the operator's tools. */
import Type from 'typebox'
import { type Operation, operation, ownOrganization, reading } from '../../api/operations/operation.ts'
import { OneOf, Results, Text } from '../../api/operations/schema.ts'

const engines: Readonly<Record<string, string>> = { tofu: 'OPEN_TOFU', terraform: 'TERRAFORM' }

export const listTerraformVersions: Operation = operation({
  id: 'listTerraformVersions',
  ...reading,
  path: '/terraform/availableVersion',
  tag: 'Terraform Main Calls',
  summary:
    'List the tools that this server has, with their versions; others are run from an image, see the advanced setting `build.engine_image`',
  area: 'resources',
  owner: ownOrganization,
  answer: Results(Type.Object({ engine: OneOf(Object.values(engines)), version: Text() })),
  async run({ parts }) {
    const installed = await parts.builder.toolVersions()
    return { results: installed.flatMap(({ name, version }) => ({ engine: engines[name] ?? '', version })) }
  },
})
