import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import type { Instance, ServiceKey, TaskKey } from '../../runtimes/runtime.ts'
import type { DeploymentParts } from '../parts.ts'
import { taskIdOf } from '../tasks/ids.ts'
import { sweepTasks, sweepUnknown } from './sweeps.ts'

const uuid = /^[0-9a-f-]{36}$/

/** A runtime that fails at one thing, and a database that takes ids only where it compares them with ids. */
const createParts = (bad: string) => {
  const done: string[] = []
  const doing = async (what: string): Promise<void> => {
    if (what.endsWith(bad)) throw new Error(`no ${bad}`)
    done.push(what)
  }
  const parts = {
    log: createLog('silent'),
    database: {
      query: async (text: string, values: unknown[]) => {
        if (text.includes('held_by = $2') && !uuid.test(String(values[1])))
          throw new Error(`invalid input syntax for type uuid: "${values[1]}"`)
        return []
      },
    },
  }
  const cluster = {
    runtime: {
      endTask: ({ taskId }: TaskKey) => doing(`task ${taskId}`),
      converge: ({ serviceId }: ServiceKey) => doing(`service ${serviceId}`),
      removeEnvironment: (id: string) => doing(`environment ${id}`),
    },
    ingress: { unpublish: (id: string) => doing(`route ${id}`) },
  }
  return { parts: standIn<DeploymentParts>(parts), cluster: standIn<Cluster>(cluster), done }
}

const instance = (taskId: string | undefined): Instance => standIn<Instance>({ serviceId: newId(), taskId })
const signal = new AbortController().signal

test('a task whose id is none of ours is ended without asking the database for it, and stops no other', async () => {
  const ids = ['x', taskIdOf(newId(), newId()), 'y', taskIdOf(newId(), newId())]
  const { parts, cluster, done } = createParts('y')
  await sweepTasks(parts, cluster, { instances: ids.map(instance), environments: [], volumes: [] }, signal)
  assert.deepEqual(
    done,
    ids.filter((id) => id !== 'y').map((id) => `task ${id}`),
  )
})

test('a service, a route or a network that cannot be removed keeps none of the others', async () => {
  const services = Array.from({ length: 3 }, () => instance(undefined))
  const environments = [newId(), newId()]
  const [bad] = services
  const { parts, cluster, done } = createParts(bad!.serviceId)
  const owned = { instances: services, environments, volumes: [] }
  await sweepUnknown(parts, cluster, owned, [bad!.serviceId, 'r'], signal)
  const rest = services.slice(1).map(({ serviceId }) => `service ${serviceId}`)
  assert.deepEqual(done, [...rest, 'route r', ...environments.map((id) => `environment ${id}`)])
})
