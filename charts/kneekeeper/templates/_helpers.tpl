{{- define "kneekeeper.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Names of cluster-wide objects, which several releases must not share. */}}
{{- define "kneekeeper.clusterName" -}}
{{- printf "%s-%s" (include "kneekeeper.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kneekeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "kneekeeper.labels" -}}
{{ include "kneekeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kneekeeper.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "kneekeeper.name" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kneekeeper.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fits the restricted pod security standard, and so does the container below. */}}
{{- define "kneekeeper.podSecurityContext" -}}
runAsNonRoot: true
{{- if .Values.fixedUser }}
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "kneekeeper.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The settings that handlers/settings.py reads. */}}
{{- define "kneekeeper.environment" -}}
- name: KNEEKEEPER_IMAGE
  value: {{ .Values.agent.image | default (include "kneekeeper.image" .) | quote }}
- name: KNEEKEEPER_IMAGE_PULL_POLICY
  value: {{ .Values.image.pullPolicy }}
- name: KNEEKEEPER_PROMETHEUS_URL
  value: {{ .Values.prometheus.url | quote }}
- name: KNEEKEEPER_WATCH_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: KNEEKEEPER_PRIORITY_CLASS
  value: {{ .Values.priorityClass.name | quote }}
- name: KNEEKEEPER_LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: KNEEKEEPER_MOST_RUNS
  value: {{ .Values.mostRuns | quote }}
{{- end -}}

{{- define "kneekeeper.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
