/** The icons, as lines in the color of the text. They are never used alone: there is always text beside them. */
const paths = {
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4',
  chevrons: 'M8 10l4-4 4 4M8 14l4 4 4-4',
  close: 'M6 6l12 12M18 6 6 18',
  play: 'M8 5.5v13l10-6.5-10-6.5Z',
  stop: 'M7 7h10v10H7z',
  restart: 'M19 12a7 7 0 1 1-2-5m2-3v4h-4',
  back: 'M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  dots: 'M5 12h.01M12 12h.01M19 12h.01',
  plus: 'M12 5v14M5 12h14',
  link: 'M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  user: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4 21c1-5 4-7 8-7s7 2 8 7',
  box: 'M12 3l8 4.5v9L12 21l-8-4.5v-9L12 3Zm0 9 8-4.5M12 12v9M12 12 4 7.5',
  branch: 'M7 4v16M7 8a5 5 0 0 0 5 5h5M17 13a2 2 0 1 0 0-4 2 2 0 0 0 0 4M7 4a2 2 0 1 0 0 .1M7 20a2 2 0 1 0 0 .1',
  database: 'M5 6c0-4 14-4 14 0v12c0 4-14 4-14 0V6Zm0 0c0 4 14 4 14 0M5 12c0 4 14 4 14 0',
  helm: 'M12 5.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM12 2.5v19M2.5 12h19M5.3 5.3l13.4 13.4M18.7 5.3 5.3 18.7',
  blocks: 'M4 3h6.5v6.5H4zM14 8.5h6.5V15H14zM4 14h6.5v6.5H4z',
  eye: 'M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12Zm9.5 3a3 3 0 1 0 0-6 3 3 0 0 0 0 6',
  pause: 'M8 5v14M16 5v14',
  down: 'M12 4v12m-5-5 5 5 5-5M5 20h14',
  up: 'M12 19V5m-6 6 6-6 6 6',
  lower: 'M12 5v14m-6-6 6 6 6-6',
  help: 'M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2m0 3h.01',
} as const

export type IconName = keyof typeof paths

export const Icon = ({ name, size = 16 }: { name: IconName; size?: number }) => (
  <svg
    width={size}
    height={size}
    viewBox="0 0 24 24"
    fill="none"
    stroke="currentColor"
    strokeWidth={1.9}
    strokeLinecap="round"
    strokeLinejoin="round"
    aria-hidden="true"
  >
    <path d={paths[name]} />
  </svg>
)
