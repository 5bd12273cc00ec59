/** The advanced settings about where instances of a cluster of several machines are, and how they follow each other. Pure. */
import type { WorkloadSpec } from '../../deployments/deployments.ts'

export const placementKeys = {
  machineLabels: 'deployment.affinity.node.required',
  apart: 'deployment.antiaffinity.pod',
  zones: 'deployment.topology_spread.zone',
  surge: 'deployment.update_strategy.rolling_update.max_surge_percent',
} as const

interface SettingsSet {
  [placementKeys.machineLabels]?: Record<string, string>
  [placementKeys.apart]?: 'Preferred' | 'Requirred'
  [placementKeys.zones]?: 'Disabled' | 'ScheduleAnyway' | 'DoNotSchedule'
  [placementKeys.surge]?: number
}

const usualSurge = 25

const settingsIn = (spec: object): SettingsSet => (spec as { advanced_settings?: SettingsSet }).advanced_settings ?? {}

/** For all that runs on the cluster, including jobs. */
export const machineLabelsIn = (spec: object): Pick<WorkloadSpec, 'machineLabels'> => {
  const { [placementKeys.machineLabels]: machineLabels = {} } = settingsIn(spec)
  return Object.keys(machineLabels).length === 0 ? {} : { machineLabels }
}

/** Settings at their default are left out. */
export const placementIn = (spec: object): Pick<WorkloadSpec, 'machineLabels' | 'apart' | 'zones' | 'surgePercent'> => {
  const set = settingsIn(spec)
  const { [placementKeys.zones]: zones = 'Disabled', [placementKeys.surge]: surgePercent = usualSurge } = set
  return {
    ...machineLabelsIn(spec),
    ...(set[placementKeys.apart] === 'Requirred' ? { apart: true } : {}),
    ...(zones === 'Disabled' ? {} : { zones }),
    ...(surgePercent === usualSurge ? {} : { surgePercent }),
  }
}
