{{- /* Kind sidecar: the application, which finds the gateway on its loopback. */}}
{{- define "portcullis.app.container" -}}
{{- $gateway := print "http://127.0.0.1:" .Values.listen.port -}}
- name: app
  image: {{ required "app.image: name the application's image" .Values.app.image }}
  env:
    - {name: OPENAI_BASE_URL, value: "{{ $gateway }}/v1"}
    - {name: OPENAI_API_KEY, value: held-by-the-gateway}
    - {name: ANTHROPIC_BASE_URL, value: {{ $gateway | quote }}}
    - {name: ANTHROPIC_API_KEY, value: held-by-the-gateway}
    {{- with .Values.app.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: http, containerPort: {{ .Values.app.port }}}
  readinessProbe:
    httpGet: {path: {{ .Values.app.readinessPath }}, port: http}
  lifecycle:
    # Until every node knows that this pod takes no new connections.
    preStop: {sleep: {seconds: {{ .Values.preStop }}}}
  resources:
    {{- toYaml .Values.app.resources | nindent 4 }}
  securityContext:
    {{- include "portcullis.hardened" . | nindent 4 }}
{{- end }}
