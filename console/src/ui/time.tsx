/** Times in the viewer's time zone: recent ones as a distance, with the exact time on hover. */
import { useEffect, useState } from 'react'

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' })
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' })
const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
]

const describe = (seconds: number): string => {
  if (Math.abs(seconds) < 45) return 'just now'
  const [unit, size] = units.find(([, each]) => Math.abs(seconds) >= each) ?? ['minute', 60]
  return relative.format(Math.round(seconds / size), unit)
}

const everyMs = 20_000

export const Time = ({ at }: { at: string | null | undefined }) => {
  const [, look] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => look((count) => count + 1), everyMs)
    return () => clearInterval(timer)
  }, [])
  const then = at == null ? Number.NaN : Date.parse(at)
  if (Number.isNaN(then)) return <span className="dim">never</span>
  return (
    <time dateTime={at!} title={exact.format(then)} className="nowrap">
      {describe((then - Date.now()) / 1000)}
    </time>
  )
}

/** `PT1M5S`, or seconds, in words. */
export const durationOf = (value: string | number | null | undefined): string => {
  if (value == null) return '–'
  const [, hours = 0, minutes = 0, rest = 0] =
    typeof value === 'number' ? [] : (/^PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?$/.exec(value) ?? [])
  const seconds = Math.round(
    typeof value === 'number' ? value : Number(hours) * 3600 + Number(minutes) * 60 + Number(rest),
  )
  if (seconds < 1) return 'under 1 s'
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
}
