/**
 * What a check leaves to the night: `npm run test:all` sets SLIPWAY_TEST_ALL=1, and then everything runs, in full. The
 * table in docs/guides/develop.md says what that is; server/test/nightly.test.ts holds it against the tests.
 */
export const isNight = process.env.SLIPWAY_TEST_ALL === '1'

/** For `skip`. */
export const onlyAtNight: string | false = isNight ? false : 'runs each night (npm run test:all)'

/** How many: in a check, at night, or as an environment variable says. */
export const howMany = (inCheck: number, atNight: number, variable?: string): number =>
  Number((variable === undefined ? undefined : process.env[variable]) ?? (isNight ? atNight : inCheck))
