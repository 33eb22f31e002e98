{{- define "quipu.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "quipu.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quipu.labels" -}}
{{ include "quipu.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* shared is not empty if servers share a store. */}}
{{- define "quipu.shared" -}}
{{- if or .Values.store.url .Values.store.existingSecret }}yes{{ end }}
{{- end }}

{{/* What can't work is refused, and the error says what to do. */}}
{{- define "quipu.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not (include "quipu.shared" .)) }}
{{- fail "replicas: several servers need a store that they share: set store.url or store.existingSecret" }}
{{- end }}
{{- if and .Values.store.url .Values.store.existingSecret }}
{{- fail "store: set url or existingSecret, not both" }}
{{- end }}
{{- if and .Values.auth.apiKey .Values.auth.existingSecret }}
{{- fail "auth: set apiKey or existingSecret, not both" }}
{{- end }}
{{- if not (or .Values.auth.apiKey .Values.auth.existingSecret .Values.auth.insecure) }}
{{- fail "auth: set apiKey to a key that callers send, or existingSecret; or insecure, if everybody who reaches the service may count" }}
{{- end }}
{{- end }}

{{- define "quipu.pod" -}}
metadata:
  labels:
    {{- include "quipu.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/secret: {{ print .Values.auth.apiKey .Values.store.url | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ if include "quipu.shared" . }}20{{ else }}90{{ end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints: {{ toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: quipu
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      env:
        {{- if or .Values.auth.apiKey .Values.auth.existingSecret }}
        - name: QUIPU_API_KEY
          valueFrom: {secretKeyRef: {name: {{ .Values.auth.existingSecret | default (include "quipu.name" .) }}, key: api-key}}
        {{- else }}
        - {name: QUIPU_INSECURE, value: "true"}
        {{- end }}
        {{- if include "quipu.shared" . }}
        - name: QUIPU_STORE
          valueFrom: {secretKeyRef: {name: {{ .Values.store.existingSecret | default (include "quipu.name" .) }}, key: store-url}}
        - {name: QUIPU_WAIT_FOR_STORE, value: {{ .Values.store.wait | quote }}}
        {{- end }}
        {{- if .Values.tls.existingSecret }}
        - {name: QUIPU_TLS_CERT, value: /tls/tls.crt}
        - {name: QUIPU_TLS_KEY, value: /tls/tls.key}
        {{- end }}
        {{- range $name, $value := .Values.settings }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        - {name: resp, containerPort: 6380}
        - {name: rpc, containerPort: 50051}
      {{- $scheme := "HTTP" }}{{ if .Values.tls.existingSecret }}{{ $scheme = "HTTPS" }}{{ end }}
      startupProbe: # waits for the store, and for a log to be replayed
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 2
        failureThreshold: 300
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      resources: {{ toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        {{- if not (include "quipu.shared" .) }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- if .Values.tls.existingSecret }}
        - {name: tls, mountPath: /tls, readOnly: true}
        {{- end }}
  {{- if .Values.tls.existingSecret }}
  volumes:
    - {name: tls, secret: {secretName: {{ .Values.tls.existingSecret }}, defaultMode: 0440}}
  {{- end }}
{{- end }}
