/** The pages of an organization, in their groups. */
const organizationSections: Record<string, Record<string, string>> = {
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

/** Pages that only the operator of the server sees. */
const operatorSections: typeof organizationSections = { Server: { system: 'System' } }

const everyGroup = { ...organizationSections, ...operatorSections }

export const sectionsFor = (isOperator: boolean): typeof organizationSections =>
  isOperator ? everyGroup : organizationSections

export const wordsFor = (isOperator: boolean): Record<string, string> =>
  Object.assign({}, ...Object.values(sectionsFor(isOperator)))

export const sectionWords: Record<string, string> = wordsFor(true)
