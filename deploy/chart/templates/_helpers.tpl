{{- define "portcullis.selector" -}}
app.kubernetes.io/name: portcullis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "portcullis.labels" -}}
{{ include "portcullis.selector" . }}
app.kubernetes.io/component: {{ .Values.kind }}
app.kubernetes.io/part-of: portcullis
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The name of everything; as a dependency of another chart, it shares the release with that one. */}}
{{- define "portcullis.name" -}}
{{- if eq .Values.kind "injected" }}{{ .Release.Name }}-portcullis{{ else }}{{ .Release.Name }}{{ end }}
{{- end }}

{{- define "portcullis.image" -}}
{{- $variant := and (eq .Values.kind "vllm") (or .Values.vllm.masks .Values.vllm.rollback) | ternary "-decode" "" }}
{{- $tag := .Values.image.tag | default (print .Chart.AppVersion $variant) }}
{{- .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "portcullis.onLoopback" -}}
{{- if has .Values.kind (list "sidecar" "injected") }}true{{ end }}
{{- end }}

{{- /* `listen` is the chart's, since ports and probes depend on it. */}}
{{- define "portcullis.listen" -}}
host: {{ has .Values.kind (list "sidecar" "injected") | ternary "127.0.0.1" "0.0.0.0" }}
port: {{ .Values.listen.port }}
admin: {host: 0.0.0.0, port: {{ .Values.listen.adminPort }}}
drain_timeout: {{ .Values.listen.drainTimeout }}
ready_when: {{ .Values.listen.readyWhen | default (eq .Values.kind "vllm" | ternary "any" "always") }}
{{- end }}

{{- /* What is read at the start only. Everything else is reloaded, so only this starts new pods. */}}
{{- define "portcullis.checksum" -}}
{{- $parts := pick .Values.config "journal" "telemetry" "redis" "state" }}
{{- if and (eq .Values.kind "vllm") (or .Values.vllm.masks .Values.vllm.rollback) }}
{{- $parts = dict "config" .Values.config "files" .Values.files }}
{{- end }}
{{- print (include "portcullis.listen" .) (toYaml $parts) | sha256sum }}
{{- end }}

{{- define "portcullis.env" -}}
{{- range .Values.secret.keys }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.secret.name }}, key: {{ . }}}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "portcullis.hardened" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* The gateway's container; a sidecar with the restartPolicy of one. */}}
{{- define "portcullis.container" -}}
- name: portcullis
  {{- if include "portcullis.onLoopback" . }}
  restartPolicy: Always     # a sidecar: ready before the application starts, and ends after it
  {{- end }}
  image: {{ include "portcullis.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [serve, --config, /etc/portcullis/portcullis.yaml, --workers, {{ .Values.workers | quote }}]
  {{- with include "portcullis.env" . | trim }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  ports:
    {{- if not (include "portcullis.onLoopback" .) }}
    - {name: http, containerPort: {{ .Values.listen.port }}}
    {{- end }}
    - {name: metrics, containerPort: {{ .Values.listen.adminPort }}}
  startupProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 1
    failureThreshold: 60
  readinessProbe:
    httpGet: {path: /readyz, port: metrics}
    periodSeconds: 5
    timeoutSeconds: 7     # probes of the upstreams and of the masks take up to 3 seconds each
    failureThreshold: 2
  livenessProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 10
    timeoutSeconds: 3
    failureThreshold: 3
  {{- if not (include "portcullis.onLoopback" .) }}
  lifecycle:
    # Until every node knows that this pod takes no new connections; then SIGTERM begins the drain.
    preStop: {sleep: {seconds: {{ .Values.preStop }}}}
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "portcullis.hardened" . | nindent 4 }}
  volumeMounts:
    # The whole folder, without subPath: only so do changes of the ConfigMap arrive.
    - {name: portcullis-config, mountPath: /etc/portcullis, readOnly: true}
    - {name: portcullis-tmp, mountPath: /tmp}
    {{- if and (eq .Values.kind "vllm") .Values.vllm.rollback }}
    - {name: tokenizer, mountPath: /tokenizer, readOnly: true}
    {{- end }}
{{- end }}

{{- /* For the pods of other charts: below `initContainers`. */}}
{{- define "portcullis.sidecar" -}}
{{ include "portcullis.container" . }}
{{- end }}

{{- /* For the pods of other charts: below `volumes`. */}}
{{- define "portcullis.volumes" -}}
- name: portcullis-config
  configMap: {name: {{ include "portcullis.name" . }}-config}
- name: portcullis-tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{- define "portcullis.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary .Release.Name "default") }}
{{- end }}
