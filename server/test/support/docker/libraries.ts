import { exec } from '../../../src/lib/exec.ts'

/** Paths of the shared libraries of a program, as its loader asks for them. */
export const librariesOf = async (program: string): Promise<string[]> => {
  const { stdout } = await exec('ldd', [program], { env: { PATH: process.env.PATH ?? '' } })
  return [...stdout.matchAll(/(\/\S+)/g)].map((match) => match[1]!).filter((path) => path !== `${program}:`)
}
