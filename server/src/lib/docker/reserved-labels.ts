/** Labels that services' owners may not set, because we, the engine and its own tools rely on them. Pure. */
export const isReservedLabel = (key: string): boolean =>
  /^(slipway|com\.docker|io\.docker|org\.dockerproject)([./]|$)/i.test(key)
