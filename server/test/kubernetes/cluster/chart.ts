/** Archives of charts as `helm package` writes them. */
import { gzipSync } from 'node:zlib'
import { pack } from 'tar-stream'

export const chartArchive = async (name: string, files: Record<string, string>): Promise<Buffer> => {
  const archive = pack()
  for (const [path, text] of Object.entries(files)) archive.entry({ name: `${name}/${path}` }, text)
  archive.finalize()
  const chunks: Buffer[] = []
  for await (const chunk of archive) chunks.push(chunk as Buffer)
  return gzipSync(Buffer.concat(chunks))
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {chart: shop}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: shop
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        image: {{ .Values.image }}
        command: [httpd, -f, -p, "8080", -h, /etc]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /group, port: {{ .Values.probePort }}}, periodSeconds: 1}
`

const others = `apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {greeting: {{ .Values.greeting | quote }}, literal: {{ "{{ not rendered twice }}" | quote }}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ .Release.Name }}}
spec:
  rules:
  - host: {{ .Release.Name }}.shop.test
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: {{ .Release.Name }}, port: {number: 80}}}}]}
`

const hook = `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-prepare
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: "before-hook-creation"}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: prepare
        image: {{ .Values.image }}
        command: ["true"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

/** The files of a chart. */
export const shopFiles = (version: string, more: Record<string, string> = {}): Record<string, string> => ({
  'Chart.yaml': `apiVersion: v2\nname: shop\nversion: ${version}\nappVersion: "9"\n`,
  'values.yaml': 'replicas: 1\nimage: busybox:1\ngreeting: hello\nprobePort: 8080\n',
  'templates/deployment.yaml': deployment,
  'templates/others.yaml': others,
  'templates/hook.yaml': hook,
  'templates/NOTES.txt': 'Thank you.\n',
  ...more,
})

/** A chart as most are: Deployment, Service, Ingress, ConfigMap and a Job before each revision. */
export const shopChart = (version: string, more: Record<string, string> = {}): Promise<Buffer> =>
  chartArchive('shop', shopFiles(version, more))
