/** Names of backups of this installation, and which of them retention removes. Pure. */

export interface BackupName {
  name: string
  /** As in the name: sorts by time. */
  time: string
  /** The server that made it by its schedule; null for one that a person has made. */
  writer: string | null
}

const pattern = /^slipway-(\d{8}T\d{6}Z)-([0-9a-f]{8}|by-hand)\.age$/

export const parseName = (name: string): BackupName | null => {
  const [, time, writer] = pattern.exec(name) ?? []
  return time === undefined ? null : { name, time, writer: writer === 'by-hand' ? null : writer! }
}

/** `writer`: a hexadecimal id of the server, for one by schedule. */
export const nameOf = (at: Date, writer: string | null): string => {
  const time = at.toISOString().replace(/\.\d+/, '').replaceAll(/[-:]/g, '')
  return `slipway-${time}-${writer === null ? 'by-hand' : writer.slice(0, 8)}.age`
}

/**
 * The oldest of those that this server made by its schedule, beyond so many (0: keep all). Those of another server, of
 * which this one may be a copy, and those that a person has made are never among them.
 */
export const beyondKept = (names: readonly string[], writer: string, keep: number): string[] => {
  if (keep === 0) return []
  const own = names.flatMap((name) => parseName(name) ?? []).filter((each) => each.writer === writer.slice(0, 8))
  return own
    .sort((a, b) => (a.time < b.time ? 1 : -1))
    .slice(keep)
    .map(({ name }) => name)
}
