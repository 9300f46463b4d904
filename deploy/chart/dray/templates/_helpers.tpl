{{- /* Labels of every object, beside those by which pods are found. */ -}}
{{- define "dray.labels" -}}
app.kubernetes.io/name: dray
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* The image of every pod. */ -}}
{{- define "dray.image" -}}
image: {{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- /* An account, with a ClusterRole bound to it. Takes root, name and rules. */ -}}
{{- define "dray.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* The right to the lease by which one of several leads; leases are always in kube-system. Takes root, name, and
more rules. */ -}}
{{- define "dray.lease" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: kube-system
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .name }}]
  verbs: [get, update, patch]
{{- with .rules }}
{{ . | trim }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: kube-system
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* What pods of a Deployment or DaemonSet have in common. Takes root and values of the component. */ -}}
{{- define "dray.podPlacement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The rights of a container that needs none on its node. */ -}}
{{- define "dray.securityContext" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile:
    type: RuntimeDefault
  capabilities:
    drop: [ALL]
{{- end -}}

{{- /* A Deployment of a service. Takes root, component, values, port and args. */ -}}
{{- define "dray.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: dray-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "dray.labels" .root | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      app: dray-{{ .component }}
  template:
    metadata:
      labels:
        app: dray-{{ .component }}
    spec:
      serviceAccountName: dray-{{ .component }}
      {{- include "dray.podPlacement" . | trim | nindent 6 }}
      containers:
      - name: {{ .component }}
        {{- include "dray.image" .root | nindent 8 }}
        args:
        {{- range concat .args .values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        ports:
        - name: metrics
          containerPort: {{ .port }}
        livenessProbe:
          httpGet:
            path: /livez
            port: metrics
        readinessProbe:
          httpGet:
            path: /readyz
            port: metrics
        resources:
          {{- toYaml .values.resources | nindent 10 }}
        {{- include "dray.securityContext" . | nindent 8 }}
        volumeMounts:
        - name: tmp
          mountPath: /tmp
      volumes:
      - name: tmp
        emptyDir: {}
{{- end -}}
