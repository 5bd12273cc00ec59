/** The options that forms offer, from the organization. */
import { useQuery } from '@tanstack/react-query'
import { client, inPath, pathLike, resultsOf } from '../../api/client.ts'
import { usePlace } from '../../ui/place.ts'

interface Named {
  id: string
  name: string
  url?: string | undefined
}

/** Until `isKnown`, an empty list means nothing; `problem` is why they could not be read. */
interface Choices {
  all: readonly Named[]
  isKnown: boolean
  problem: string | undefined
}

const useChoices = (name: string, path: string, options: { retry?: false } = {}): Choices => {
  const { organizationId = '' } = usePlace()
  const { data, error } = useQuery({
    queryKey: [name, organizationId],
    queryFn: (): Promise<Named[]> => {
      const list = pathLike('/organization/{organizationId}/containerRegistry', 'containerRegistry', path)
      return resultsOf(client.GET(list, inPath({ organizationId })))
    },
    enabled: organizationId !== '',
    ...options,
  })
  return { all: data ?? [], isKnown: data !== undefined, problem: data === undefined ? error?.message : undefined }
}

export const useGitTokens = (): readonly Named[] => useChoices('git tokens', 'gitToken', { retry: false }).all

export const useRegistries = (): Choices => useChoices('registries', 'containerRegistry')

export const useHelmRepositories = (): Choices => useChoices('helm repositories', 'helmRepository')

export const hostOf = (url: string | undefined): string => (url ?? '').replace(/^\w+:\/\//, '').replace(/\/.*$/, '')

export const isDockerHub = ({ url }: Named): boolean => /(^|\.)docker\.(io|com)$/.test(hostOf(url))
