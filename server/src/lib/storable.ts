/** Text that came from a program or a stranger, as the database can hold it: no NUL, no half of a surrogate pair. */
export const storable = (text: string): string => text.replaceAll('\0', '').toWellFormed()
