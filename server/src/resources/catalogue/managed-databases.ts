/**
 * Managed databases of cloud providers, and the instance classes they run on, from the providers' public data sheets. A
 * selection: classes that have been available in nearly every region for years.
 */
const sizes = ['large', 'xlarge', '2xlarge', '4xlarge']
const general = (families: readonly string[]): string[] => [
  ...['micro', 'small', 'medium', 'large', 'xlarge', '2xlarge'].map((size) => `db.t3.${size}`),
  ...['micro', 'small', 'medium', 'large', 'xlarge', '2xlarge'].map((size) => `db.t4g.${size}`),
  ...families.flatMap((family) => sizes.map((size) => `db.${family}.${size}`)),
]
const relational = general(['m5', 'm6g', 'm6i', 'r5', 'r6g', 'r6i'])

export const managedDatabaseTypes = {
  AWS: ['MONGODB', 'MYSQL', 'POSTGRESQL', 'REDIS'],
  SCW: ['MYSQL', 'POSTGRESQL', 'REDIS'],
} as const

const scalewayNodes = [
  ...['PICO', 'NANO', 'MICRO'].map((size) => `DB-PLAY2-${size}`),
  ...['S', 'M', 'L', 'XL'].map((size) => `DB-DEV-${size}`),
  ...['XXS', 'XS', 'S', 'M', 'L'].map((size) => `DB-PRO2-${size}`),
  ...['XS', 'S', 'M', 'L', 'XL'].map((size) => `DB-GP-${size}`),
]

const awsNodes: Record<string, readonly string[]> = {
  POSTGRESQL: relational,
  MYSQL: relational,
  MONGODB: [
    'db.t3.medium',
    'db.t4g.medium',
    ...['r5', 'r6g'].flatMap((family) => sizes.map((size) => `db.${family}.${size}`)),
  ],
  REDIS: [
    ...['t3', 't4g'].flatMap((family) => ['micro', 'small', 'medium'].map((size) => `cache.${family}.${size}`)),
    ...['m5', 'm6g', 'r5', 'r6g'].flatMap((family) => sizes.map((size) => `cache.${family}.${size}`)),
  ],
}

/** By provider and type of database. */
export const databaseInstanceTypes: Partial<Record<string, Record<string, readonly string[]>>> = {
  AWS: awsNodes,
  SCW: {
    POSTGRESQL: scalewayNodes,
    MYSQL: scalewayNodes,
    REDIS: ['MICRO', 'XS', 'S', 'M', 'L', 'XL'].map((size) => `RED1-${size}`),
  },
}
