import type { Socket } from 'node:net'
import { newId } from '../lib/ids.ts'

const parserAnswers: Record<string, [number, string, string]> = {
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large', 'The headers are too long.'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout', 'The request took too long to arrive.'],
}

/** Answers what is not valid HTTP; it reaches no route. */
export const answerParserError = (error: Error & { code?: string }, socket: Socket): void => {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const [status, reason, message] = parserAnswers[error.code ?? ''] ?? [
    400,
    'Bad Request',
    'The request is not valid HTTP.',
  ]
  const body = JSON.stringify({
    status,
    error: reason,
    message,
    detail: message,
    code: 'invalid_http',
    request_id: newId(),
  })
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  )
}
