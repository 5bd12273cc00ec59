{{- define "slipway.selector" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slipway.labels" -}}
{{ include "slipway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "slipway.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "slipway.labels" . | nindent 2 }}
{{- end }}

{{- /* Of the whole cluster, where releases of several namespaces meet. */ -}}
{{- define "slipway.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace .Release.Name }}
{{- end }}

{{- define "slipway.address" -}}
{{- if .Values.ingress.enabled -}}
{{ ternary "http" "https" (empty .Values.ingress.tlsSecret) }}://{{ .Values.ingress.host }}
{{- end -}}
{{- end }}

{{- /* A whole number of values is a float here, whose usual text is 1e+06. */ -}}
{{- define "slipway.text" -}}
{{ ternary (int64 .) . (kindIs "float64" .) | toString | quote }}
{{- end }}

{{- /* The settings, by name: those of this chart count more than those of the values. */ -}}
{{- define "slipway.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- with include "slipway.address" . -}}
{{- $_ := set $config "SLIPWAY_PUBLIC_URL" ($config.SLIPWAY_PUBLIC_URL | default .) -}}
{{- $_ := set $config "SLIPWAY_CONSOLE_URL" ($config.SLIPWAY_CONSOLE_URL | default .) -}}
{{- end -}}
{{- if .Values.access.create -}}
{{- $allowed := list "kubernetes.default.svc:443" ($config.SLIPWAY_OUTBOUND_ALLOW | default "") | compact -}}
{{- $_ := set $config "SLIPWAY_OUTBOUND_ALLOW" (join "," $allowed) -}}
{{- end -}}
{{- range $name, $value := $config }}
- name: {{ $name }}
  value: {{ include "slipway.text" $value }}
{{- end -}}
{{- end }}

{{- define "slipway.fromSecret" -}}
- name: {{ .name }}
  valueFrom: { secretKeyRef: { name: {{ .secret | quote }}, key: {{ .key | quote }} } }
{{- end }}
