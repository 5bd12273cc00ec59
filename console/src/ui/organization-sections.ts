/** The pages of an organization, in their groups. */
export const organizationSections: Record<string, Record<string, string>> = {
  People: { members: 'Members', roles: 'Roles', tokens: 'API tokens' },
  Infrastructure: { clusters: 'Clusters', credentials: 'Credentials' },
  Sources: { registries: 'Registries', charts: 'Chart repositories', git: 'Git tokens', pushes: 'Push hooks' },
  Organization: {
    webhooks: 'Webhooks',
    labels: 'Labels and annotations',
    audit: 'Audit log',
    usage: 'Usage',
    general: 'Settings',
  },
}

export const sectionWords: Record<string, string> = Object.assign({}, ...Object.values(organizationSections))
