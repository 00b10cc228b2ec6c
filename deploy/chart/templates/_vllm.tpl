{{- /* Kind vllm: what has to be there before vLLM starts. */}}
{{- define "portcullis.vllm.before" -}}
{{- if and .Values.vllm.masks (eq .Values.vllm.plugin "init") }}
- name: plugin
  image: {{ .Values.vllm.image }}
  # Without dependencies: vLLM has the others, and none of its versions may change.
  command: [python3, -m, pip, install, --no-cache-dir, --no-deps, --upgrade, --target=/plugin]
  args:
    {{- range .Values.vllm.pluginPackages }}
    - {{ eq . "portcullis-gateway" | ternary (print . "==" $.Chart.AppVersion) . }}
    {{- end }}
  securityContext:
    {{- include "portcullis.vllm.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: plugin, mountPath: /plugin}
{{- end }}
{{- if .Values.vllm.masks }}
- name: masks
  image: {{ include "portcullis.image" . }}
  args: [masks, --config, /etc/portcullis/portcullis.yaml, --out, /masks/masks.json]
  {{- with include "portcullis.env" . | trim }}
  env:
    {{- . | nindent 4 }}
  {{- end }}
  # The file is readable by its owner only, who has to be vLLM's user.
  securityContext:
    {{- include "portcullis.vllm.securityContext" . | nindent 4 }}
    readOnlyRootFilesystem: true
  volumeMounts:
    - {name: portcullis-config, mountPath: /etc/portcullis, readOnly: true}
    - {name: masks, mountPath: /masks}
    {{- if .Values.vllm.rollback }}
    - {name: tokenizer, mountPath: /tokenizer, readOnly: true}
    {{- end }}
{{- end }}
{{- end }}

{{- define "portcullis.vllm.tokenizer" -}}
- name: tokenizer
  image: {{ .Values.vllm.image }}
  command:
    - python3
    - -c
    - |
      import sys
      from huggingface_hub import snapshot_download

      # What vLLM reads, too, without the weights.
      snapshot_download(sys.argv[1], local_dir="/tokenizer", allow_patterns=["tokenizer*", "*config.json", "*map.json"])
  args: [{{ .Values.vllm.model | quote }}]
  {{- with .Values.vllm.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "portcullis.vllm.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: tokenizer, mountPath: /tokenizer}
{{- end }}

{{- define "portcullis.vllm.securityContext" -}}
runAsUser: {{ .Values.vllm.runAsUser }}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- define "portcullis.vllm.probe" -}}
# Not httpGet: the kubelet asks from outside the pod, where the loopback cannot be reached.
exec:
  command:
    - python3
    - -c
    - import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)
periodSeconds: 10
timeoutSeconds: 5
{{- end }}

{{- define "portcullis.vllm.container" -}}
- name: vllm
  image: {{ .Values.vllm.image }}
  args:
    - --model={{ required "vllm.model: name the model" .Values.vllm.model }}
    - --served-model-name={{ .Values.vllm.servedName }}
    # Only the gateway beside it reaches it.
    - --host=127.0.0.1
    - --port=8000
    # Longer than the gateway drains, so that running answers still have a model.
    - --shutdown-timeout={{ add .Values.listen.drainTimeout 5 }}
    {{- if .Values.vllm.masks }}
    - --logits-processors=gateway.decode.vllm_plugin:BannedWords
    {{- end }}
    {{- with .Values.vllm.args }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - {name: VLLM_NO_USAGE_STATS, value: "1"}
    {{- if .Values.vllm.masks }}
    - {name: PORTCULLIS_MASKS, value: /masks/masks.json}
    {{- if eq .Values.vllm.plugin "init" }}
    - {name: PYTHONPATH, value: /plugin}
    {{- end }}
    {{- end }}
    {{- with .Values.vllm.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  startupProbe:
    {{- include "portcullis.vllm.probe" . | nindent 4 }}
    failureThreshold: {{ div .Values.vllm.startTimeout 10 }}
  livenessProbe:
    {{- include "portcullis.vllm.probe" . | nindent 4 }}
    failureThreshold: 3
  lifecycle:
    # Longer than the gateway's, which may ask on behalf of late clients until its own drain begins.
    preStop: {sleep: {seconds: {{ add .Values.preStop 5 }}}}
  resources:
    {{- toYaml .Values.vllm.resources | nindent 4 }}
  securityContext:
    {{- include "portcullis.vllm.securityContext" . | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /root/.cache/huggingface}
    - {name: shared-memory, mountPath: /dev/shm}
    {{- if .Values.vllm.masks }}
    - {name: masks, mountPath: /masks, readOnly: true}
    {{- if eq .Values.vllm.plugin "init" }}
    - {name: plugin, mountPath: /plugin, readOnly: true}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "portcullis.vllm.volumes" -}}
- name: models
  {{- toYaml .Values.vllm.models | nindent 2 }}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.vllm.sharedMemory }}}
{{- if .Values.vllm.masks }}
- name: masks
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- if eq .Values.vllm.plugin "init" }}
- name: plugin
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
{{- end }}
{{- if .Values.vllm.rollback }}
- name: tokenizer
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
{{- end }}
