{{- define "kafkalite.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kafkalite.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kafkalite.labels" -}}
{{ include "kafkalite.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The name that other pods have for one of the brokers, which is told its own as $POD_NAME */}}
{{- define "kafkalite.domain" -}}
{{ include "kafkalite.name" . }}-headless.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* A value as text: Helm has large whole numbers as 6.048e+08 */}}
{{- define "kafkalite.number" -}}
{{- if kindIs "float64" . }}{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* Values that contradict each other end the rendering, with a sentence */}}
{{- define "kafkalite.check" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.zookeeper.connect) }}
{{- fail "replicaCount > 1: the brokers are a cluster, which needs zookeeper.connect" }}
{{- end }}
{{- if .Values.external.enabled }}
{{- if and (eq .Values.external.type "NodePort") (not .Values.external.host) }}
{{- fail "external.type=NodePort needs external.host, the name or address of the nodes" }}
{{- end }}
{{- if and (eq .Values.external.type "LoadBalancer") (ne (len .Values.external.loadBalancerHosts) (int .Values.replicaCount)) }}
{{- fail "external.type=LoadBalancer needs one of external.loadBalancerHosts for each broker" }}
{{- end }}
{{- end }}
{{- $own := list "broker.id" "log.dirs" "listeners" "advertised.listeners" "listener.security.protocol.map" "inter.broker.listener.name" "metrics.listener" "zookeeper.connect" }}
{{- range $name, $_ := .Values.settings }}
{{- if has $name $own }}
{{- fail (printf "settings.%s: the chart sets it" $name) }}
{{- end }}
{{- end }}
{{- end }}
