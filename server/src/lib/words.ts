/** Lists of names that are too long for one line, in lines of several instead of one each. Pure. */

type Split<Line extends string> = Line extends `${infer First} ${infer Rest}` ? First | Split<Rest> : Line

/** The words of these lines, one blank between any two, typed one by one. */
export const words = <const Lines extends readonly string[]>(...lines: Lines): Split<Lines[number]>[] =>
  lines.flatMap((line) => line.split(' ')) as Split<Lines[number]>[]
