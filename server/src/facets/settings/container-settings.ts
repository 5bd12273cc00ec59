/**
 * The advanced settings that change how containers run, and the fields that they set for an engine. A setting at its
 * default sets no field, so that the fingerprint of a service without settings never changes. Pure.
 */
import type { WorkloadSpec } from '../../deployments/deployments.ts'

export const containerKeys = {
  readOnlyRoot: 'security.read_only_root_filesystem',
  strategy: 'deployment.update_strategy.type',
  postStart: 'deployment.lifecycle.post_start_exec_command',
  preStop: 'deployment.lifecycle.pre_stop_exec_command',
} as const

interface SettingsSet {
  [containerKeys.readOnlyRoot]?: boolean
  [containerKeys.strategy]?: 'RollingUpdate' | 'Recreate'
  [containerKeys.postStart]?: string[]
  [containerKeys.preStop]?: string[]
}

export const containerSettingsIn = (
  spec: object,
): Pick<WorkloadSpec, 'readOnlyRoot' | 'recreate' | 'postStart' | 'preStop'> => {
  const set = (spec as { advanced_settings?: SettingsSet }).advanced_settings ?? {}
  const { [containerKeys.postStart]: postStart = [], [containerKeys.preStop]: preStop = [] } = set
  return {
    ...(set[containerKeys.readOnlyRoot] === true ? { readOnlyRoot: true } : {}),
    ...(set[containerKeys.strategy] === 'Recreate' ? { recreate: true } : {}),
    ...(postStart.length > 0 ? { postStart } : {}),
    ...(preStop.length > 0 ? { preStop } : {}),
  }
}
