/**
 * Why a container's program could not be started, found out from its file: the messages of the engine's first process,
 * and of a shell that takes a binary for a script, are misleading.
 */
import { posix } from 'node:path'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { isNotStarted } from '../../../lib/last-words.ts'
import { findAt } from './archive.ts'

type Executable =
  /** `machine`: Docker's name of its architecture; `loader`: the program that has to load it. */
  | { kind: 'elf'; machine: string; loader: string | null }
  | { kind: 'script'; interpreter: string; endsInReturn: boolean }
  | { kind: 'other' }

/** The field e_machine of ELF. */
const machines: Record<number, string> = {
  3: '386',
  8: 'mips',
  21: 'ppc64le',
  22: 's390x',
  40: 'arm',
  62: 'amd64',
  183: 'arm64',
  243: 'riscv64',
  258: 'loong64',
}

const loaderType = 3
const longestLoader = 256

/** For a 64-bit file; null for a static one, and if its headers are not within these bytes. */
const loaderOf = (head: Buffer, isLittle: boolean): string | null => {
  const word = (at: number): number => (isLittle ? head.readUInt16LE(at) : head.readUInt16BE(at))
  const double = (at: number): number => (isLittle ? head.readUInt32LE(at) : head.readUInt32BE(at))
  const quad = (at: number): number => Number(isLittle ? head.readBigUInt64LE(at) : head.readBigUInt64BE(at))
  const [from, size, count] = [quad(32), word(54), word(56)]
  for (let at = from; at < from + size * count && at + 56 <= head.length; at += Math.max(size, 56)) {
    if (double(at) !== loaderType) continue
    const [offset, length] = [quad(at + 8), quad(at + 32)]
    if (length > longestLoader || offset + length > head.length) return null
    return head.toString('latin1', offset, offset + length).replace(/\0.*$/s, '')
  }
  return null
}

const readElf = (head: Buffer): Executable => {
  const isLittle = head[5] === 1
  const number = isLittle ? head.readUInt16LE(18) : head.readUInt16BE(18)
  const is64 = head[4] === 2
  return {
    kind: 'elf',
    machine: machines[number] ?? `an unknown architecture (${number})`,
    loader: is64 && head.length >= 64 ? loaderOf(head, isLittle) : null,
  }
}

/** Why the kernel does not start a file, from its first bytes. Pure: they come from an image, and are only read. */
const readExecutable = (head: Buffer): Executable => {
  if (head.length >= 20 && head.toString('latin1', 0, 4) === '\x7fELF') return readElf(head)
  if (head.toString('latin1', 0, 2) !== '#!') return { kind: 'other' }
  const end = head.indexOf('\n')
  const line = head.toString('latin1', 2, end < 0 ? Math.min(head.length, 256) : end)
  const [interpreter = ''] = line.trim().split(/[ \t]+/)
  return { kind: 'script', interpreter, endsInReturn: line.endsWith('\r') }
}

interface Detail {
  /** The program, as requested. */
  Path: string
  Config: { Env: string[] | null; WorkingDir: string }
}

interface File {
  path: string
  mode: number
  executable: Executable
}

/** This much of a program has its headers, and the names of its interpreter or loader. */
const headBytes = 64 * 1024
const mostLinks = 8
const deadlineMs = 10_000
const usualPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Follows links; null for a missing entry, or one that is not a file. */
const fileAt = async (engine: Engine, id: string, path: string, signal: AbortSignal): Promise<File | null> => {
  let at = path
  for (let links = 0; links <= mostLinks; links++) {
    const found = await findAt(engine, id, at, headBytes, signal)
    if (found === null) return null
    const { type, mode = 0, linkname } = found.header
    if (type === 'file') return { path, mode, executable: readExecutable(found.head) }
    if (type !== 'symlink' || !linkname) return null
    at = posix.resolve(posix.dirname(at), linkname)
  }
  return null
}

/** Possible paths of a command, in search order. */
const placesOf = ({ Path, Config }: Detail): string[] => {
  const folder = Config.WorkingDir || '/'
  if (Path.includes('/')) return [posix.resolve(folder, Path)]
  const path = (Config.Env ?? []).find((each) => each.startsWith('PATH='))?.slice(5) ?? usualPath
  return path.split(':').map((each) => posix.resolve(folder, each, Path))
}

const findFile = async (engine: Engine, id: string, detail: Detail, signal: AbortSignal): Promise<File | null> => {
  for (const place of placesOf(detail)) {
    const file = await fileAt(engine, id, place, signal)
    if (file !== null) return file
  }
  return null
}

const missing = ({ Path }: Detail): string =>
  Path.includes('/')
    ? `The image has no file ${Path}: check the command and the entrypoint.`
    : `The image has no program ${Path} in the folders of its PATH: check the command and the entrypoint.`

/** `has`: whether the container has a file of this path. */
const explainFile = async (
  { path, mode, executable }: File,
  architecture: string,
  has: (path: string) => Promise<boolean>,
): Promise<string | null> => {
  if ((mode & 0o111) === 0) return `${path} is not executable: give it that mode in the image, as with chmod +x.`
  if (executable.kind === 'other') return `${path} is neither a program for Linux nor a script that begins with #!.`
  if (executable.kind === 'script') {
    const { interpreter, endsInReturn } = executable
    if (endsInReturn)
      return `The first line of the script ${path} ends in a carriage return, as lines of Windows do, so that its interpreter is not found: save it with LF line ends.`
    return (await has(interpreter))
      ? null
      : `The script ${path} names the interpreter ${interpreter}, which the image does not have.`
  }
  const { machine, loader } = executable
  if (machine !== architecture)
    return `${path} is built for another CPU architecture: it is for ${machine}, and the machine that runs it is ${architecture}. Build the image for linux/${architecture}.`
  if (loader === null || (await has(loader))) return null
  return `${path} needs the loader ${loader}, which the image does not have: it is built for another Linux distribution or C library than the image's.`
}

/** Null if it was started, or no error is found. `lines`: the last output. */
export const whyNotStarted = async (
  engine: Engine,
  id: string,
  lines: readonly string[],
  outer: AbortSignal,
): Promise<string | null> => {
  const signal = AbortSignal.any([outer, AbortSignal.timeout(deadlineMs)])
  try {
    const detail = await engine.call<Detail>('GET', `/containers/${id}/json`, { signal })
    if (!isNotStarted(detail.Path, lines)) return null
    const file = await findFile(engine, id, detail, signal)
    if (file === null) return missing(detail)
    const { Arch } = await engine.call<{ Arch: string }>('GET', '/version', { signal })
    return await explainFile(file, Arch, async (path) => (await fileAt(engine, id, path, signal)) !== null)
  } catch (error) {
    outer.throwIfAborted()
    // It is only a help: without it, the output says enough.
    if (isEngineError(error) || signal.aborted) return null
    throw error
  }
}
