{{- define "kneekeeper.dashboard.name" -}}
{{- printf "%s-dashboard" (include "kneekeeper.name" .) -}}
{{- end -}}

{{- define "kneekeeper.dashboard.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dashboard
{{- end -}}

{{- define "kneekeeper.dashboard.labels" -}}
{{ include "kneekeeper.dashboard.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The dashboard only reads. */}}
{{- define "kneekeeper.rules.dashboard" -}}
- apiGroups: [kneekeeper.io]
  resources: [servingprofiles, tuningruns]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, watch]
{{- end -}}
