/** The options that forms offer, from the organization. */
import { useQuery } from '@tanstack/react-query'
import { answerOf, client } from '../../api/client.ts'
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

const choicesOf = ({ data, error }: { data: readonly Named[] | undefined; error: Error | null }): Choices => ({
  all: data ?? [],
  isKnown: data !== undefined,
  problem: data === undefined ? error?.message : undefined,
})

const usePath = (): { path: { organizationId: string }; isKnown: boolean } => {
  const { organizationId = '' } = usePlace()
  return { path: { organizationId }, isKnown: organizationId !== '' }
}

export const useGitTokens = (): readonly Named[] => {
  const { path, isKnown } = usePath()
  const tokens = useQuery({
    queryKey: ['git tokens', path.organizationId],
    queryFn: async () =>
      (await answerOf(client.GET('/organization/{organizationId}/gitToken', { params: { path } }))).results as Named[],
    enabled: isKnown,
    retry: false,
  })
  return tokens.data ?? []
}

export const useRegistries = (): Choices => {
  const { path, isKnown } = usePath()
  const registries = useQuery({
    queryKey: ['registries', path.organizationId],
    queryFn: async () =>
      (await answerOf(client.GET('/organization/{organizationId}/containerRegistry', { params: { path } })))
        .results as Named[],
    enabled: isKnown,
  })
  return choicesOf(registries)
}

export const useHelmRepositories = (): Choices => {
  const { path, isKnown } = usePath()
  const repositories = useQuery({
    queryKey: ['helm repositories', path.organizationId],
    queryFn: async () =>
      (await answerOf(client.GET('/organization/{organizationId}/helmRepository', { params: { path } })))
        .results as Named[],
    enabled: isKnown,
  })
  return choicesOf(repositories)
}

export const hostOf = (url: string | undefined): string => (url ?? '').replace(/^\w+:\/\//, '').replace(/\/.*$/, '')

export const isDockerHub = ({ url }: Named): boolean => /(^|\.)docker\.(io|com)$/.test(hostOf(url))
