/** Thrown for a word of a Dockerfile that has no meaning; the caller adds the line. */
export class BadWord extends Error {}
