/** Reads files of a repository for forms that are filled in before a service is created: Dockerfiles and variables. */
import Type from 'typebox'
import {
  type Context,
  nodeInPath,
  type Operation,
  operation,
  organizationInPath,
} from '../../api/operations/operation.ts'
import { checkRefs } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Nullable, OneOf, Results, Text } from '../../api/operations/schema.ts'
import { declaredArgs, parseDockerfile } from '../../builds/preparation/dockerfile.ts'
import { badRequest, DeploymentError, invalidField } from '../../lib/errors.ts'
import { completeGitRepository, GitRepositoryToRead, insidePath, plainPath } from '../service/git-source.ts'
import { readDeclarations, readValues } from '../terraform/module-text.ts'
import { askingGit, sourceAskedFor } from './git-browsing.ts'

interface Asked {
  git_repository: unknown
}

/** The wanted files below the root path; paths are relative to it. */
const readFiles = async (context: Context, body: Asked, isWanted: (path: string) => boolean) => {
  const git = completeGitRepository(body.git_repository)
  const files = await askingGit(async (signal) =>
    context.parts.builder.files(await sourceAskedFor(context, git), plainPath(git.root_path), isWanted, signal),
  )
  return files.sort((a, b) => (a.path < b.path ? -1 : 1))
}

const dockerfileBody = Type.Object({
  git_repository: GitRepositoryToRead(),
  dockerfile_path: Text(1024, { minLength: 1 }),
})

const checkDockerfile = operation({
  id: 'checkDockerfile',
  method: 'POST',
  path: '/environment/{environmentId}/checkDockerfile',
  tag: 'Environment',
  summary: 'Check that a repository has a Dockerfile that can be built here; lists its build arguments and base images',
  // It logs in with the git token, like the service that will use it.
  scope: 'Write',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  body: dockerfileBody,
  status: 200,
  answer: Type.Object({
    dockerfile_path: Text(1024),
    arg: Type.Array(Text()),
    repositories: Type.Array(Text()),
  }),
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, dockerfileBody, body, principal.organizationId)
    const path = plainPath(insidePath('/dockerfile_path', body.dockerfile_path))
    const [file] = await readFiles(context as Context, body, (each) => each === path)
    if (file === undefined) throw invalidField('/dockerfile_path', 'there is no such file in the repository')
    try {
      const dockerfile = parseDockerfile(file.text)
      const names = new Set(dockerfile.stages.map(({ name }) => name))
      const bases = dockerfile.stages.map(({ base }) => base).filter((base) => !names.has(base.toLowerCase()))
      return {
        dockerfile_path: body.dockerfile_path,
        arg: [...new Set(declaredArgs(dockerfile))],
        repositories: [...new Set(bases)],
      }
    } catch (error) {
      if (error instanceof DeploymentError) throw badRequest(error.message, undefined, error.code)
      throw error
    }
  },
})

const mostBranches = 500
const mostDockerfiles = 50

const isDockerfile = (path: string): boolean =>
  /(^|\/)(Dockerfile|Containerfile)([.-][\w.-]+)?$|\.Dockerfile$/.test(path)

const numbersIn = (text: string): number[] =>
  [...text.matchAll(/(?:^|\s)(\d{1,5})(?:\/tcp)?(?=\s|$)/gi)].map(([, port]) => Number(port))

/** The TCP ports that an image exposes: by its last stage, and those that this one begins with. */
const exposedBy = (text: string): number[] => {
  try {
    const { stages } = parseDockerfile(text)
    const byName = new Map(stages.map((stage) => [stage.name, stage]))
    const ports = new Set<number>()
    let stage = stages.at(-1)
    while (stage !== undefined) {
      for (const each of stage.instructions)
        if (each.kind === 'setting' && each.word === 'EXPOSE') for (const port of numbersIn(each.rest)) ports.add(port)
      const base = byName.get(stage.base.toLowerCase())
      byName.delete(stage.name)
      stage = base === stage ? undefined : base
    }
    return [...ports].filter((port) => port > 0 && port < 65_536)
  } catch (error) {
    if (error instanceof DeploymentError) return []
    throw error
  }
}

const inspectBody = Type.Object({ git_repository: GitRepositoryToRead() })

/** The requested branch, else the default one. */
const branchOf = (wanted: string | undefined, branches: readonly string[]): string =>
  wanted ?? ['main', 'master'].find((name) => branches.includes(name)) ?? branches[0] ?? 'main'

const inspectRepository = operation({
  id: 'inspectRepository',
  method: 'POST',
  path: '/environment/{environmentId}/inspectRepository',
  tag: 'Environment',
  summary:
    'List what a repository has to build from: its branches, and the Dockerfiles of one with the ports they expose',
  // It logs in with the git token, like the service that will use it.
  scope: 'Write',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  body: inspectBody,
  status: 200,
  answer: Type.Object({
    branch: Text(1024),
    branches: Type.Array(Text(1024)),
    dockerfiles: Type.Array(Type.Object({ path: Text(4096), exposed_ports: Type.Array(Type.Integer()) })),
  }),
  async run(context) {
    const { body, db, principal, parts } = context
    await checkRefs(db, inspectBody, body, principal.organizationId)
    const asked = body.git_repository as { branch?: string }
    const git = completeGitRepository(body.git_repository)
    const branches = await askingGit(async (signal) =>
      parts.builder.branches(await sourceAskedFor(context as Context, git), signal),
    )
    const branch = branchOf(asked.branch, branches)
    const files = branches.includes(branch)
      ? await readFiles(context as Context, { git_repository: { ...body.git_repository, branch } }, isDockerfile)
      : []
    return {
      branch,
      branches: branches.slice(0, mostBranches),
      dockerfiles: files.slice(0, mostDockerfiles).map(({ path, text }) => ({ path, exposed_ports: exposedBy(text) })),
    }
  },
})

const valuesBody = Type.Object({
  git_repository: GitRepositoryToRead(),
  mode: Type.Object({
    type: OneOf(['AutoDiscover', 'SpecificPaths']),
    paths: Maybe(List(Text(1024, { minLength: 1 }), 50)),
  }),
})

const common = {
  method: 'POST' as const,
  tag: 'Organization Main Calls',
  scope: 'Write' as const,
  area: 'resources' as const,
  owner: organizationInPath,
  status: 200 as const,
}

const Values = () => Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' } })

const listValues = operation({
  ...common,
  id: 'listTfVarsFilesFromGitRepo',
  path: '/organization/{organizationId}/listTfVarsFilesFromGitRepo',
  summary: 'List the .tfvars files of a repository, or those at given paths, with the values that they set',
  body: valuesBody,
  answer: Results(Type.Object({ source: Text(4096), variables: Values() })),
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, valuesBody, body, principal.organizationId)
    const { type, paths = [] } = body.mode
    const wanted = new Set(paths.map((path, index) => plainPath(insidePath(`/mode/paths/${index}`, path))))
    const isWanted = (path: string): boolean =>
      type === 'SpecificPaths' ? wanted.has(path) : /\.tfvars(\.json)?$/.test(path)
    const files = await readFiles(context as Context, body, isWanted)
    return { results: files.map(({ path, text }) => ({ source: path, variables: readValues(path, text) })) }
  },
})

const variablesBody = Type.Object({ git_repository: GitRepositoryToRead() })

const parseVariables = operation({
  ...common,
  id: 'parseTerraformVariablesFromGitRepo',
  path: '/organization/{organizationId}/parseTerraformVariablesFromGitRepo',
  summary: 'List the variables that the Terraform module in a folder of a repository declares',
  body: variablesBody,
  answer: Results(
    Type.Object({
      key: Text(),
      sensitive: Flag(),
      nullable: Flag(),
      default: Nullable(Text(65_536)),
      description: Nullable(Text(65_536)),
      source: Text(4096),
    }),
  ),
  async run(context) {
    const { body, db, principal } = context
    await checkRefs(db, variablesBody, body, principal.organizationId)
    // A module is the files of one folder.
    const files = await readFiles(context as Context, body, (path) => /^[^/]+\.(tf|tofu)$/.test(path))
    return { results: files.flatMap(({ path, text }) => readDeclarations(path, text)) }
  },
})

export const gitFileOperations: Operation[] = [checkDockerfile, inspectRepository, listValues, parseVariables]
