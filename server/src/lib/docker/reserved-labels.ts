/** Labels that services' owners may not set: what we, the engine and its own tools believe. Pure. */
export const isReservedLabel = (key: string): boolean =>
  /^(slipway|com\.docker|io\.docker|org\.dockerproject)([./]|$)/i.test(key)
