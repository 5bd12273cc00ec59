/** Untrusted text, as the database can store it: no NUL, no lone surrogates. */
export const sanitizeText = (text: string): string => text.replaceAll('\0', '').toWellFormed()
