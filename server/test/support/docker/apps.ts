/** Applications that tests deploy: tiny, on busybox (of `ensureBusybox`), each with the one behavior that a test needs. */
import { busyboxImage } from './busybox-image.ts'

/** An HTTP server of busybox that answers `text` on port 8080. */
export const page = (text: string): Record<string, string> => ({
  Dockerfile: [
    `FROM ${busyboxImage}`,
    'COPY index.html /www/index.html',
    'COPY index.html /www/slow',
    'EXPOSE 8080',
    'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]',
    '',
  ].join('\n'),
  'index.html': `${text}\n`,
})

/** Starts and never listens; says `text` first. */
export const deaf = (text: string): Record<string, string> => ({
  Dockerfile: [`FROM ${busyboxImage}`, `CMD ["sh", "-c", "echo ${text}; exec sleep 100000"]`, ''].join('\n'),
})

/** Does not build: its last output line is `reason`. */
export const broken = (reason: string): Record<string, string> => ({
  Dockerfile: [`FROM ${busyboxImage}`, `RUN echo ${reason} && false`, ''].join('\n'),
})
