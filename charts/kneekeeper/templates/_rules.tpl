{{/* What the operator does in a namespace that it works in. */}}
{{- define "kneekeeper.rules.namespace" -}}
# Profiles are the users': the operator patches its annotations and finalizer, never makes or deletes one.
- apiGroups: [kneekeeper.io]
  resources: [servingprofiles]
  verbs: [get, list, watch, patch]
- apiGroups: [kneekeeper.io]
  resources: [tuningruns]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kneekeeper.io]
  resources: [servingprofiles/status, tuningruns/status]
  verbs: [update]
# Owner references that block deletion ask for this where the admission plugin is on.
- apiGroups: [kneekeeper.io]
  resources: [servingprofiles/finalizers, tuningruns/finalizers]
  verbs: [update]
# The target: read, rewritten in mode Apply, scaled by one in BorrowReplica.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, patch]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [get, update]
# Clones, and the serving pods that they are copies of.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, create, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Load agents with their tokens, and the samples of each stage.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, delete]
# Whatever could select a clone: the proof that nothing does.
- apiGroups: [""]
  resources: [services]
  verbs: [list]
- apiGroups: [apps]
  resources: [replicasets, statefulsets, daemonsets]
  verbs: [list]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [list]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* What only the cluster as a whole can tell. */}}
{{- define "kneekeeper.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [list]
{{- end -}}

{{/* kopf finds the resources to watch. */}}
{{- define "kneekeeper.rules.discovery" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end -}}
