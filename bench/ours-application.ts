/** The bodies of applications that the figures create through our API. */
export const applicationBody = (name: string, gitUrl: string, more: Record<string, unknown> = {}) => ({
  name,
  git_repository: { url: gitUrl, branch: 'main' },
  build_mode: 'DOCKER',
  dockerfile_path: 'Dockerfile',
  healthchecks: {},
  cpu: 100,
  memory: 64,
  min_running_instances: 1,
  max_running_instances: 1,
  ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  ...more,
})
