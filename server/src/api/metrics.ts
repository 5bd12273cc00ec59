/** Figures about this process, in the Prometheus text form. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { Database } from '../store/database.ts'

export interface Metrics {
  observe(operation: string, status: number, seconds: number): void
  text(): Promise<string>
  contentType: string
}

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

export const createMetrics = (database: Database): Metrics => {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  const requests = new Counter({
    name: 'slipway_requests_total',
    help: 'Requests answered, by operation and status.',
    labelNames: ['operation', 'status'],
    registers,
  })
  const durations = new Histogram({
    name: 'slipway_request_seconds',
    help: 'Seconds from request to answer, by operation.',
    labelNames: ['operation'],
    buckets,
    registers,
  })
  const deployments = new Gauge({
    name: 'slipway_deployments',
    help: 'Deployments by state.',
    labelNames: ['state'],
    registers,
  })
  return {
    observe(operation, status, seconds) {
      requests.inc({ operation, status })
      durations.observe({ operation }, seconds)
    },
    async text() {
      const rows = await database
        .query<{ state: string; count: number }>('select state, count(*)::int as count from deployment group by state')
        .catch(() => [])
      deployments.reset()
      for (const { state, count } of rows) deployments.set({ state }, count)
      return registry.metrics()
    },
    contentType: registry.contentType,
  }
}
