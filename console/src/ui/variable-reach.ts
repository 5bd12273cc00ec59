/** Which services get a change of variables with their next deployment, by name. */
import { type QueryClient, useQueryClient } from '@tanstack/react-query'
import * as read from '../api/queries.ts'
import { usePlace } from './place.ts'
import { tell } from './toasts.tsx'

export interface VariablesPlace {
  scope: 'PROJECT' | 'ENVIRONMENT' | 'APPLICATION' | 'CONTAINER' | 'JOB' | 'HELM' | 'TERRAFORM'
  parentId: string
}

const mostNames = 5
const list = new Intl.ListFormat('en-GB')

const isStale = (status: string | undefined): boolean => status === 'OUT_OF_DATE'

/** These have no user-defined variables. */
const hasVariables = ({ kind }: read.Service): boolean => kind !== 'database' && kind !== 'argocdApp'

const staleServices = async (queries: QueryClient, environmentId: string): Promise<read.Service[]> => {
  const options = read.live(environmentId)
  // A read that is under way may have started before the change.
  await queries.cancelQueries({ queryKey: options.queryKey })
  const live = await queries.fetchQuery({ ...options, staleTime: 0 })
  const statuses = read.statusesIn(live)
  const services = await queries.fetchQuery(read.services(environmentId))
  return services.filter((each) => hasVariables(each) && isStale(statuses.get(each.id)?.service_deployment_status))
}

const staleEnvironments = async (queries: QueryClient, projectId: string): Promise<string[]> => {
  const options = read.environmentsOf(projectId)
  await queries.cancelQueries({ queryKey: options.queryKey })
  const all = await queries.fetchQuery({ ...options, staleTime: 0 })
  return all.filter(({ deployment_status: status }) => isStale(status?.deployment_status)).map(({ name }) => name)
}

/** At most five names, then how many more there are. */
const namesOf = (names: readonly string[]): string => {
  const others = names.length - mostNames
  return list.format(others > 0 ? [...names.slice(0, mostNames), `${others} more`] : names)
}

const none = 'No deployed service is changed by it.'

const reachOf = async (queries: QueryClient, place: VariablesPlace, environmentId: string): Promise<string> => {
  const { scope, parentId } = place
  if (scope === 'PROJECT') {
    const names = await staleEnvironments(queries, parentId)
    return names.length === 0 ? none : `Services of ${namesOf(names)} get the change with their next deployment.`
  }
  const services = await staleServices(queries, environmentId)
  const names = services.filter(({ id }) => scope === 'ENVIRONMENT' || id === parentId).map(({ name }) => name)
  if (names.length === 0) return none
  const isOne = names.length === 1
  return `${namesOf(names)} ${isOne ? 'gets' : 'get'} the change with ${isOne ? 'its' : 'their'} next deployment.`
}

/** Shows a notice about a change of variables, with the services that get it. */
export const useTellReach = (place: VariablesPlace): ((done: string) => void) => {
  const queries = useQueryClient()
  const { environmentId = '' } = usePlace()
  return (done) => {
    // The change is made, even if the services that get it cannot be read.
    reachOf(queries, place, environmentId)
      .catch(() => 'Services have it with their next deployment.')
      .then((reach) => tell(`${done} ${reach}`))
  }
}
