export const environmentModes = ['DEVELOPMENT', 'PREVIEW', 'PRODUCTION', 'STAGING']
