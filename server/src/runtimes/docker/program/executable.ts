/** Why the kernel does not start a file, from its first bytes. Pure: they come from an image, and are only read. */

export type Executable =
  /** `machine`: as Docker calls its architecture; `loader`: what has to load it. */
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

/** Of a 64-bit file; null for a static one, and where its headers are not within these bytes. */
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

export const readExecutable = (head: Buffer): Executable => {
  if (head.length >= 20 && head.toString('latin1', 0, 4) === '\x7fELF') return readElf(head)
  if (head.toString('latin1', 0, 2) !== '#!') return { kind: 'other' }
  const end = head.indexOf('\n')
  const line = head.toString('latin1', 2, end < 0 ? Math.min(head.length, 256) : end)
  const [interpreter = ''] = line.trim().split(/[ \t]+/)
  return { kind: 'script', interpreter, endsInReturn: line.endsWith('\r') }
}
