{{- define "refloat.name" -}}
{{- if contains "refloat" .Release.Name }}{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{ else }}{{ printf "%s-refloat" (.Release.Name | trunc 37 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- /* Of (dict "root" $ "part" "evaluator"), as are those below that say so. */}}
{{- define "refloat.selector" -}}
app.kubernetes.io/name: refloat
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "refloat.labels" -}}
{{ include "refloat.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "refloat.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* The part of a pod's specification that all pods share. */}}
{{- define "refloat.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* Of root and part. */}}
{{- define "refloat.spread" -}}
{{- with .root.Values.topologyKeys }}
topologySpreadConstraints:
  {{- range . }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "refloat.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "refloat.pulsarArgs" -}}
{{- with .Values.pulsar }}
- {{ printf "--pulsar=%s" .url | quote }}
{{- with .adminUrl }}
- {{ printf "--pulsar-admin=%s" . | quote }}
{{- end }}
- {{ printf "--pulsar-tenant=%s" .tenant | quote }}
- {{ printf "--pulsar-namespace=%s" .namespace | quote }}
- {{ printf "--pulsar-events=%s" .events | quote }}
- {{ printf "--pulsar-decisions=%s" .decisions | quote }}
- {{ printf "--pulsar-policies=%s" .policies | quote }}
{{- if .caSecret }}
- --pulsar-tls-ca=/etc/refloat/secrets/pulsar-ca.crt
{{- end }}
{{- if .tokenSecret }}
- --pulsar-token-file=/etc/refloat/secrets/pulsar-token
{{- end }}
{{- if .certSecret }}
- --pulsar-tls-cert=/etc/refloat/secrets/pulsar.crt
- --pulsar-tls-key=/etc/refloat/secrets/pulsar.key
{{- end }}
{{- with .oauth2 }}
{{- if .keySecret }}
- --pulsar-oauth2-key-file=/etc/refloat/secrets/pulsar-oauth2.json
- {{ printf "--pulsar-oauth2-issuer=%s" .issuer | quote }}
{{- with .audience }}
- {{ printf "--pulsar-oauth2-audience=%s" . | quote }}
{{- end }}
{{- with .scope }}
- {{ printf "--pulsar-oauth2-scope=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of the values of a part: --memory, and what else is given. */}}
{{- define "refloat.moreArgs" -}}
{{- with .memory }}
- {{ printf "--memory=%s" . | quote }}
{{- end }}
{{- range $flag, $value := .flags }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end }}

{{- /* Of root and part: the files of one volume. It follows the secrets, as mounted subPaths would not. */}}
{{- define "refloat.secretFiles" -}}
{{- $v := .root.Values }}
{{- $files := list }}
{{- with $v.pulsar.caSecret }}{{ $files = append $files (list . "ca.crt" "pulsar-ca.crt") }}{{ end }}
{{- with $v.pulsar.tokenSecret }}{{ $files = append $files (list . "token" "pulsar-token") }}{{ end }}
{{- with $v.pulsar.certSecret }}{{ $files = concat $files (list (list . "tls.crt" "pulsar.crt") (list . "tls.key" "pulsar.key")) }}{{ end }}
{{- with $v.pulsar.oauth2.keySecret }}{{ $files = append $files (list . "credentials.json" "pulsar-oauth2.json") }}{{ end }}
{{- if or (eq .part "ingester") (and (eq .part "evaluator") $v.api.enabled) }}
{{- with $v.jobDB.caSecret }}{{ $files = append $files (list . "ca.crt" "job-db-ca.crt") }}{{ end }}
{{- end }}
{{- if eq .part "evaluator" }}
{{- with $v.followArmada.caSecret }}{{ $files = append $files (list . "ca.crt" "armada-ca.crt") }}{{ end }}
{{- with $v.followArmada.tokenSecret }}{{ $files = append $files (list . "token" "armada-token") }}{{ end }}
{{- if and $v.notifications.secret (eq $v.notifications.format "json") }}{{ $files = append $files (list $v.notifications.secret "secret" "notify-secret") }}{{ end }}
{{- if $v.api.enabled }}
{{- $files = append $files (list $v.api.authSecret "auth.yaml" "api-auth.yaml") }}
{{- with $v.api.loginSecret }}{{ $files = concat $files (list (list . "client-secret" "api-client-secret") (list . "session-key" "api-session-key")) }}{{ end }}
{{- with $v.api.tlsSecret }}{{ $files = concat $files (list (list . "tls.crt" "api.crt") (list . "tls.key" "api.key")) }}{{ end }}
{{- end }}
{{- end }}
{{- range $files }}
- secret: {name: {{ index . 0 }}, items: [{key: {{ index . 1 }}, path: {{ index . 2 }}}]}
{{- end }}
{{- end }}

{{- define "refloat.secretVolume" -}}
{{- with include "refloat.secretFiles" . }}
- name: secrets
  projected:
    sources: {{- trim . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "refloat.secretMount" -}}
{{- with include "refloat.secretFiles" . }}
- {name: secrets, mountPath: /etc/refloat/secrets, readOnly: true}
{{- end }}
{{- end }}

{{- define "refloat.jobDB" -}}
- name: REFLOAT_JOB_DB
  valueFrom:
    secretKeyRef: {name: {{ .Values.jobDB.secret }}, key: {{ .Values.jobDB.key }}}
{{- end }}

{{- /* A program listens when it has reached the broker: until then only the startup probe counts. */}}
{{- define "refloat.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
