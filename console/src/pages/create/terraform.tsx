/** A Terraform module of a git repository, with the variables that it declares. */
import { PasswordInput, SegmentedControl, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { client, resultsOf } from '../../api/client.ts'
import { usePlace } from '../../ui/place.ts'
import { type FormProps, Look, NameField, nameFrom } from './fields.tsx'
import { type Git, GitFields } from './git.tsx'

interface Variable {
  key: string
  value: string
  secret: boolean
}

const useTools = () =>
  useQuery({
    queryKey: ['terraform tools'],
    queryFn: () => resultsOf(client.GET('/terraform/availableVersion')),
    staleTime: Number.POSITIVE_INFINITY,
  })

export const TerraformForm = ({ body, change, problem }: FormProps) => {
  const { organizationId = '' } = usePlace()
  const tools = useTools()
  const git = (body.terraform_files_source as { git_repository: Git }).git_repository
  const variables = (body.terraform_variables_source as { tf_vars: Variable[] }).tf_vars
  const version = (body.provider_version as { explicit_version: string }).explicit_version
  const put = (fields: Partial<Git>): void => {
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(git.url)
    change({
      terraform_files_source: { git_repository: { ...git, ...fields } },
      ...(isNamed && fields.url !== undefined ? { name: nameFrom(fields.url) } : {}),
    })
  }
  const putVariables = (tf_vars: Variable[]): void =>
    change({ terraform_variables_source: { tf_var_file_paths: [], tf_vars } })
  const looking = useMutation({
    mutationFn: async () => {
      const path = '/organization/{organizationId}/parseTerraformVariablesFromGitRepo'
      const body = { git_repository: git }
      return resultsOf(client.POST(path, { params: { path: { organizationId } }, body }))
    },
    onSuccess(declared) {
      const values = new Map(variables.map(({ key, value }) => [key, value]))
      putVariables(declared.map(({ key, sensitive }) => ({ key, value: values.get(key) ?? '', secret: sensitive })))
    },
  })
  const declared = new Map((looking.data ?? []).map((each) => [each.key, each]))
  return (
    <>
      <GitFields git={git} put={put} problem={problem} pointer="/terraform_files_source/git_repository" />
      <Look label="Look for its variables" isDisabled={git.url === ''} looking={looking}>
        {looking.data === undefined ? null : (
          <span className="state good">
            {looking.data.length === 0 ? 'It declares no variables' : `It declares ${looking.data.length} variables`}
          </span>
        )}
      </Look>
      <NameField {...{ body, change, problem }} />
      {variables.map(({ key, value, secret }, index) => {
        const { default: fallback, description } = declared.get(key) ?? { default: null, description: null }
        const Input = secret ? PasswordInput : TextInput
        return (
          <Input
            key={key}
            label={key}
            description={description ?? undefined}
            placeholder={fallback ?? undefined}
            required={fallback === null}
            value={value}
            onChange={(event) => putVariables(variables.with(index, { key, value: event.currentTarget.value, secret }))}
            error={problem(`/terraform_variables_source/tf_vars/${index}/value`)}
          />
        )
      })}
      <SegmentedControl
        aria-label="Tool"
        data={[
          { value: 'TERRAFORM', label: 'Terraform' },
          { value: 'OPEN_TOFU', label: 'OpenTofu' },
        ]}
        value={String(body.engine)}
        onChange={(engine) => change({ engine })}
      />
      <TextInput
        label="Version"
        required
        description={
          tools.data === undefined
            ? 'Such as 1.9.7'
            : tools.data.length === 0
              ? 'This server has no tool installed: name an image that has one in the advanced settings, before the first deployment.'
              : `Installed here: ${tools.data.map((each) => `${each.engine === 'OPEN_TOFU' ? 'OpenTofu' : 'Terraform'} ${each.version}`).join(', ')}. Others come from an image, see the advanced settings.`
        }
        value={version}
        onChange={(event) =>
          change({
            provider_version: { read_from_terraform_block: false, explicit_version: event.currentTarget.value },
          })
        }
        error={problem('/provider_version')}
      />
      <SegmentedControl
        aria-label="Where the state is kept"
        data={[
          { value: 'kubernetes', label: 'This server keeps the state' },
          { value: 'user_provided', label: 'The module has a backend' },
        ]}
        value={Object.keys(body.backend as object)[0]!}
        onChange={(backend) => change({ backend: { [backend]: {} } })}
      />
    </>
  )
}

/** Without the variables that were left at their defaults. */
export const withoutDefaults = (body: Record<string, unknown>): Record<string, unknown> => {
  const { tf_vars: all, ...rest } = body.terraform_variables_source as { tf_vars: Variable[] }
  return { ...body, terraform_variables_source: { ...rest, tf_vars: all.filter(({ value }) => value !== '') } }
}
