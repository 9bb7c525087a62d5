{{- define "tidegate.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidegate.labels" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tidegate.account" -}}
{{- .Values.serviceAccount.name | default (include "tidegate.name" .) -}}
{{- end -}}

{{- define "tidegate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}

{{/* The configuration of the server: what the chart knows, and then the values. */}}
{{- define "tidegate.config" -}}
{{- $settings := dict
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "tidegate.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/tidegate/pod-template.yaml"
  "spark.kubernetes.driver.pod.name" (dict "env" "POD_NAME")
  "spark.kubernetes.driver.podTemplateFile" "/etc/tidegate/driver-template.yaml"
  "spark.kubernetes.authenticate.driver.serviceAccountName" (include "tidegate.account" .)
-}}
{{- if .Values.imagePullSecrets -}}
{{- $_ := set $settings "spark.kubernetes.container.image.pullSecrets" (join "," .Values.imagePullSecrets) -}}
{{- end -}}
{{- $known := dict
  "data" "/var/lib/tidegate/data"
  "server" (dict "host" "0.0.0.0" "http_token" (dict "file" "/run/secrets/tidegate/token"))
  "login" (dict "password_file" "/run/secrets/tidegate/users")
  "registration" (dict "address" (printf "%s-pods.%s.svc" (include "tidegate.name" .) .Release.Namespace))
  "tls" (dict "certificate" "/run/secrets/tidegate/tls.crt" "key" "/run/secrets/tidegate/tls.key")
  "engine" (dict "master" "k8s://https://kubernetes.default.svc" "settings" $settings)
-}}
{{- $config := mustMergeOverwrite $known (deepCopy .Values.config) -}}
{{- $_ := required "config.engine.settings must set spark.sql.warehouse.dir" (index $config.engine.settings "spark.sql.warehouse.dir") -}}
{{- toToml $config -}}
{{- end -}}

{{- define "tidegate.template" -}}
{{- toYaml (mustMergeOverwrite (fromYaml (.Files.Get "pod-template.yaml")) (deepCopy .Values.podTemplate)) -}}
{{- end -}}

{{- define "tidegate.driverTemplate" -}}
{{- toYaml (mustMergeOverwrite (fromYaml (.Files.Get "driver-template.yaml")) (deepCopy .Values.driverTemplate)) -}}
{{- end -}}

{{/* Whether an engine runs in a pod of its own. */}}
{{- define "tidegate.drivers" -}}
{{- if contains "\"deploy_mode\":\"cluster\"" (toJson .Values.config) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether an engine has volumes that Spark claims on demand. */}}
{{- define "tidegate.claims" -}}
{{- if contains "spark.kubernetes.executor.volumes.persistentVolumeClaim." (toJson .Values.config) -}}
true
{{- end -}}
{{- end -}}
