/** The default stages of every environment have technical names. */
const stageWords: Record<string, string> = {
  'DATABASE DEFAULT': 'Databases',
  'JOB DEFAULT': 'Jobs',
  'CONTAINER DEFAULT': 'Containers',
  'APPLICATION DEFAULT': 'Applications',
}

export const stageName = (name: string): string => stageWords[name] ?? name
