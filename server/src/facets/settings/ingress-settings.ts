/** The advanced settings of the network: their types, and what each does on the way of a request. Pure data. */
import type { TSchema } from 'typebox'
import { Flag, Nullable, Recorded, Text, Whole } from '../../api/operations/schema.ts'
import { ingressDefaults } from '../../deployments/traffic/ingress-settings.ts'

type Make = (options: { default: unknown; description: string }) => TSchema

const text: Make = (options) => Text(8192, options)
const flag: Make = (options) => Flag(options)
const seconds: Make = (options) => Whole(0, 86_400, options)
const maybe =
  (schema: TSchema): Make =>
  (options) =>
    Nullable(schema, options)
const maybeSeconds = maybe(Whole(0, 86_400))

const http = 'HTTP ports; websockets only until they are open.'
const off = '0 turns it off.'

const acting: Readonly<Record<string, readonly [Make, string]>> = {
  'network.ingress.proxy_body_size_mb': [
    (options) => Whole(0, 1_000_000, options),
    `The largest body of a request, in MiB; a larger one gets a 413. ${off} For HTTP ports.`,
  ],
  'network.ingress.enable_cors': [
    flag,
    'Adds CORS headers to the responses of HTTP ports, in place of those of the program, and answers preflights.',
  ],
  'network.ingress.cors_allow_origin': [
    text,
    '`*`, or origins separated by commas; a host may begin with `*.`. Cookies and logins are allowed only for listed origins.',
  ],
  'network.ingress.cors_allow_methods': [text, 'The methods that a preflight is answered with.'],
  'network.ingress.cors_allow_headers': [text, 'The headers that a preflight is answered with.'],
  'network.ingress.proxy_buffer_size_kb': [
    (options) => Whole(1, 1_000_000, options),
    'The size of the headers of a response, in KiB: at least 64 are always accepted, and at most 1024. Larger ones get a 502.',
  ],
  'network.ingress.keepalive_time_seconds': [
    seconds,
    `How old a connection of a client (HTTP/1.1) may be to be used again. ${off}`,
  ],
  'network.ingress.keepalive_timeout_seconds': [
    seconds,
    'How long a connection of a client (HTTP/1.1) stays open without a request; 0 closes it after each response.',
  ],
  'network.ingress.send_timeout_seconds': [
    seconds,
    `How long a client may read nothing of a response that waits for it. ${off} For HTTP ports.`,
  ],
  'network.ingress.proxy_connect_timeout_seconds': [
    seconds,
    `For connecting to an instance, with all attempts; after about 6 s the router gives up in any case. ${off} For HTTP ports.`,
  ],
  'network.ingress.proxy_send_timeout_seconds': [
    seconds,
    `How long the program may read nothing of a request that waits for it. ${off} For ${http}`,
  ],
  'network.ingress.proxy_read_timeout_seconds': [
    seconds,
    `How long the program may send nothing: before its response, and between two parts of it. A response as a whole may take any time, so an event stream needs a heartbeat within it. ${off} For ${http}`,
  ],
  'network.ingress.whitelist_source_range': [
    text,
    'Addresses and networks that may send requests, separated by commas; others get a 403. 0.0.0.0/0 or nothing allows all. The address is the one of the connection, or what SLIPWAY_TRUSTED_PROXIES say of it.',
  ],
  'network.ingress.denylist_source_range': [
    text,
    'Addresses and networks that get a 403, separated by commas; it counts more than the whitelist.',
  ],
  'network.ingress.basic_auth_env_var': [
    text,
    'A variable of the service with lines of `htpasswd` (bcrypt of cost 4 to 10, apr1 or SHA-1), separated by commas or line breaks: requests without such a login get a 401. A deployment fails if it is missing or has anything else.',
  ],
  'network.ingress.enable_sticky_session': [
    flag,
    'Keeps a client with the instance that answered it first, by a cookie, for a day. For HTTP ports.',
  ],
  'network.ingress.grpc_send_timeout_seconds': [
    seconds,
    `How long the program may read nothing of a gRPC stream that waits for it. ${off}`,
  ],
  'network.ingress.grpc_read_timeout_seconds': [
    seconds,
    `How long nothing may move in a gRPC stream, in either direction. ${off}`,
  ],
  'network.ingress.force_ssl_redirect': [
    flag,
    'Sends requests over HTTP to HTTPS (308) at every host that has a certificate. Without TLS (`SLIPWAY_ROUTER_TLS_PORT`) no host has one. For HTTP ports.',
  ],
  'network.ingress.extra_headers': [
    text,
    'A JSON object of headers that every response gets, in place of those of the program with the same name.',
  ],
  'network.gateway_api.http_request_timeout_seconds': [
    maybeSeconds,
    'For a whole request and its response, over HTTP and gRPC; not for websockets. Null or 0: no limit.',
  ],
  'network.gateway_api.http_connection_idle_timeout_seconds': [
    maybeSeconds,
    'How long a connection to an instance (HTTP) stays open without a request, if the program does not say less. Null or 0: what the program says, or 1.5 s.',
  ],
  'network.gateway_api.retry.num_retries': [
    maybe(Whole(0, 100)),
    'How often a request without a body is repeated when it fails as `retry_on` says. For HTTP ports. Null: the router repeats only what no program has seen, and once what a broken connection makes safe to repeat.',
  ],
  'network.gateway_api.retry.retry_on': [
    maybe(Text()),
    'Separated by commas: 5xx, gateway-error, retriable-status-codes, retriable-4xx, reset, connect-failure, refused-stream; the last two always hold. Null: retriable-status-codes. Needs `num_retries`.',
  ],
  'network.gateway_api.retry.http_status_codes': [
    maybe(Text()),
    'Statuses that are repeated, separated by commas; null: 503 unless `retry_on` is set. Needs `num_retries`.',
  ],
  'network.gateway_api.retry.per_try_timeout_seconds': [
    maybeSeconds,
    'For the beginning of the response of each attempt; then it counts as `reset`. Null or 0: no limit. Needs `num_retries`.',
  ],
}

/** Settings of the network that have no effect here, each with the reason. */
const recorded: Record<string, TSchema> = {
  'network.ingress.proxy_buffering': Recorded(
    Text(8192, { default: 'on' }),
    'the router passes responses on as they come, as `off` does.',
  ),
}

export const requestBuffering: Record<string, TSchema> = {
  'network.ingress.proxy_request_buffering': Recorded(
    Text(8192, { default: 'on' }),
    'the router passes requests on as they come, as `off` does.',
  ),
}

export const ingress: Record<string, TSchema> = {
  ...Object.fromEntries(
    Object.entries(acting).map(([key, [make, description]]) => [
      key,
      make({ default: ingressDefaults[key], description }),
    ]),
  ),
  ...recorded,
}
