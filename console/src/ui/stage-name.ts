/** The stages that every environment begins with have names for programs. */
const stageWords: Record<string, string> = {
  'DATABASE DEFAULT': 'Databases',
  'JOB DEFAULT': 'Jobs',
  'CONTAINER DEFAULT': 'Containers',
  'APPLICATION DEFAULT': 'Applications',
}

export const stageName = (name: string): string => stageWords[name] ?? name
