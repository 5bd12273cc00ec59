/** Thrown for a word of a Dockerfile that has no meaning; the caller says in which line. */
export class BadWord extends Error {}
