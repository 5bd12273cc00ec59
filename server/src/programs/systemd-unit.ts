/** The text of a systemd unit for one checkout. Pure. */

export interface UnitParts {
  /** Absolute, as all paths here. */
  root: string
  user: string
  /** Where programs are found. */
  path: string
  /** Null: `.slipway` in the checkout. */
  dataDir: string | null
}

/** `%` begins a specifier. */
const literal = (text: string): string => text.replaceAll('%', '%%')

const quoted = (text: string): string => `"${literal(text).replaceAll(/["\\]/g, '\\$&')}"`

/**
 * `KillMode=process`: a stop or restart ends the server alone; the router keeps serving and the database is adopted by
 * the next start. After invalid settings (exit code 2) there is no restart.
 */
export const unitText = ({ root, user, path, dataDir }: UnitParts): string => `[Unit]
Description=Slipway
After=network-online.target docker.service
Wants=network-online.target docker.service

[Service]
Type=exec
User=${literal(user)}
WorkingDirectory=${literal(root)}
Environment=${quoted(`PATH=${path}`)}
${dataDir === null ? '' : `Environment=${quoted(`SLIPWAY_DATA_DIR=${dataDir}`)}\n`}ExecStart=/bin/bash ${quoted(`${root}/bin/run`).replaceAll('$', '$$$$')} main
KillMode=process
TimeoutStopSec=30
Restart=always
RestartSec=2
RestartPreventExitStatus=2
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
`
