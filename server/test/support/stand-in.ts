/** Something in the place of a part: only the named members, which must be members of it, and of whatever types. */
export const standIn = <T>(members: { [Name in keyof T]?: unknown }): T => members as T
