/** Amounts as Kubernetes writes them: `250m`, `16Gi`, `1e3`. */
const factors: Record<string, number> = {
  ...{ n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 },
  ...{ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 },
}

export const parseQuantity = (text: unknown): number | null => {
  const [, digits, suffix = ''] =
    /^(\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?)([A-Za-z]{0,2})$/.exec(String(text)) ?? []
  const factor = factors[suffix]
  return digits === undefined || factor === undefined ? null : Number(digits) * factor
}
