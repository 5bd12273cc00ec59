/** Of one instance, unless a figure says otherwise. */
export const usualLimits = { cpuMillicores: 100, memoryMb: 64 }

/** The bodies of applications that the figures create through our API. */
export const applicationBody = (name: string, gitUrl: string, more: Record<string, unknown> = {}) => ({
  name,
  git_repository: { url: gitUrl, branch: 'main' },
  build_mode: 'DOCKER',
  dockerfile_path: 'Dockerfile',
  healthchecks: {},
  cpu: usualLimits.cpuMillicores,
  memory: usualLimits.memoryMb,
  min_running_instances: 1,
  max_running_instances: 1,
  ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  ...more,
})
