/** The schemas of bodies, taken from openapi.json by the build. */
declare module 'virtual:forms' {
  export const forms: Record<string, import('./ui/schema.ts').Schema>
}

/** Those of the advanced settings, by kind. */
declare module 'virtual:advanced' {
  export const forms: Record<string, import('./ui/schema.ts').Schema>
}
