// Package chart tests the chart of Helm in deploy/chart: it is linted and
// rendered as Helm does, and what comes of it is read as Kubernetes reads it. It is a
// module of its own, since that links much of both.
package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const dir = "../../deploy/chart"

type values = map[string]any

var key = values{"apiKey": "sekret,other"}

// Helm finds nothing to say about the chart.
func TestLint(t *testing.T) {
	for _, v := range []values{
		{"auth": key},
		{"auth": key, "replicas": 3, "store": values{"url": "postgres://db/app"}, "serviceMonitor": values{"enabled": true}},
	} {
		for _, m := range lint.All(dir, v, "default", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%v", m)
			}
		}
	}
}

// A rendering is what a release is made of.
type rendering struct {
	stateful   *appsv1.StatefulSet
	deployment *appsv1.Deployment
	service    *corev1.Service
	secret     *corev1.Secret
	disruption *policyv1.PodDisruptionBudget
	monitor    *monitor
}

// A monitor is as much of a ServiceMonitor as the chart uses.
type monitor struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string
			Interval      string
			Scheme        string
			TLSConfig     values `json:"tlsConfig"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

func (r *rendering) pod() corev1.PodTemplateSpec {
	if r.stateful != nil {
		return r.stateful.Spec.Template
	}
	return r.deployment.Spec.Template
}

// render renders the chart. Fields that Kubernetes does not know are errors.
func render(t *testing.T, v values) (*rendering, error) {
	t.Helper()
	c, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "counts", Namespace: "shop", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	r := &rendering{}
	read := func(text string, into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		if strings.TrimSpace(text) == "" || strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		switch kind.Kind {
		case "StatefulSet":
			r.stateful = &appsv1.StatefulSet{}
			read(text, r.stateful)
		case "Deployment":
			r.deployment = &appsv1.Deployment{}
			read(text, r.deployment)
		case "Service":
			r.service = &corev1.Service{}
			read(text, r.service)
		case "Secret":
			r.secret = &corev1.Secret{}
			read(text, r.secret)
		case "PodDisruptionBudget":
			r.disruption = &policyv1.PodDisruptionBudget{}
			read(text, r.disruption)
		case "ServiceMonitor":
			r.monitor = &monitor{}
			read(text, r.monitor)
		default:
			t.Errorf("%s is a %s", name, kind.Kind)
		}
	}
	return r, nil
}

// must renders what can be rendered, and checks what holds for every release.
func must(t *testing.T, v values) *rendering {
	t.Helper()
	r, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	pod := r.pod()
	for name, value := range r.service.Spec.Selector {
		if pod.Labels[name] != value {
			t.Errorf("the service selects %s=%s, and the pods have %q", name, value, pod.Labels[name])
		}
	}
	s, c := pod.Spec.SecurityContext, pod.Spec.Containers[0]
	if !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *s.FSGroup != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("security of the pod: %+v", s)
	}
	if l := c.SecurityContext; !*l.ReadOnlyRootFilesystem || *l.AllowPrivilegeEscalation || !slices.Equal(l.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security of the container: %+v", l)
	}
	for _, p := range r.service.Spec.Ports {
		if !slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool { return have.Name == p.TargetPort.StrVal }) {
			t.Errorf("the service has port %s, and the container has not", p.Name)
		}
	}
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe.HTTPGet.Path != "/healthz" {
		t.Errorf("probes %+v, %+v, %+v", c.ReadinessProbe, c.LivenessProbe, c.StartupProbe)
	}
	if c.Resources.Limits.Memory().IsZero() {
		t.Error("memory is not limited")
	}
	return r
}

// setting returns what a variable of the server is, and the secret that has it.
func setting(r *rendering, name string) (value, secret string) {
	for _, e := range r.pod().Spec.Containers[0].Env {
		if e.Name == name {
			if e.ValueFrom != nil {
				return e.ValueFrom.SecretKeyRef.Key, e.ValueFrom.SecretKeyRef.Name
			}
			return e.Value, ""
		}
	}
	return "", ""
}

func wants(t *testing.T, r *rendering, name, value, secret string) {
	t.Helper()
	if v, s := setting(r, name); v != value || s != secret {
		t.Errorf("%s is %q of %q, want %q of %q", name, v, s, value, secret)
	}
}

// By default there is one server, with a volume of its own.
func TestEmbedded(t *testing.T) {
	r := must(t, values{"auth": key, "settings": values{"QUIPU_TOKEN_WINDOW": "48h", "QUIPU_KEY_QUOTA": 5000}})
	if r.stateful == nil || r.deployment != nil || *r.stateful.Spec.Replicas != 1 || len(r.stateful.Spec.VolumeClaimTemplates) != 1 || r.disruption != nil || r.monitor != nil {
		t.Fatalf("%+v", r)
	}
	if m := r.pod().Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].Name != r.stateful.Spec.VolumeClaimTemplates[0].Name || m[0].MountPath != "/data" {
		t.Errorf("mounts %+v", m)
	}
	if r.secret.StringData["api-key"] != "sekret,other" {
		t.Errorf("secret %v", r.secret.StringData)
	}
	wants(t, r, "QUIPU_API_KEY", "api-key", r.secret.Name)
	wants(t, r, "QUIPU_STORE", "", "")
	wants(t, r, "QUIPU_INSECURE", "", "")
	wants(t, r, "QUIPU_TOKEN_WINDOW", "48h", "")
	wants(t, r, "QUIPU_KEY_QUOTA", "5000", "")
	if r.service.Name != "counts-quipu" || r.stateful.Spec.ServiceName != r.service.Name {
		t.Errorf("service %s", r.service.Name)
	}
}

// Over a shared store there are as many servers as are wanted, without volumes.
func TestShared(t *testing.T) {
	r := must(t, values{"auth": key, "replicas": 3, "store": values{"url": "postgres://u:p@db/app"}, "serviceMonitor": values{"enabled": true, "labels": values{"team": "counts"}}})
	if r.deployment == nil || r.stateful != nil || *r.deployment.Spec.Replicas != 3 || r.disruption == nil || r.disruption.Spec.MaxUnavailable.IntVal != 1 {
		t.Fatalf("%+v", r)
	}
	if m := r.pod().Spec.Containers[0].VolumeMounts; len(m) != 0 {
		t.Errorf("mounts %+v", m)
	}
	wants(t, r, "QUIPU_STORE", "store-url", r.secret.Name)
	wants(t, r, "QUIPU_WAIT_FOR_STORE", "2m", "")
	if r.secret.StringData["store-url"] != "postgres://u:p@db/app" {
		t.Errorf("secret %v", r.secret.StringData)
	}
	e := r.monitor.Spec.Endpoints
	if len(e) != 1 || e[0].Port != "http" || e[0].Authorization.Credentials.Name != r.secret.Name || r.monitor.Labels["team"] != "counts" {
		t.Errorf("monitor %+v", r.monitor)
	}
	one := must(t, values{"auth": key, "store": values{"url": "redis://cache:6379"}})
	if one.deployment == nil || one.disruption != nil {
		t.Errorf("one server: %+v", one)
	}
}

// Secrets may be made by others, and then the chart makes none.
func TestSecrets(t *testing.T) {
	r := must(t, values{
		"auth": values{"existingSecret": "keys"}, "store": values{"existingSecret": "store"}, "tls": values{"existingSecret": "cert"},
		"serviceMonitor": values{"enabled": true},
	})
	if r.secret != nil {
		t.Errorf("secret %+v", r.secret)
	}
	wants(t, r, "QUIPU_API_KEY", "api-key", "keys")
	wants(t, r, "QUIPU_STORE", "store-url", "store")
	wants(t, r, "QUIPU_TLS_CERT", "/tls/tls.crt", "")
	wants(t, r, "QUIPU_TLS_KEY", "/tls/tls.key", "")
	c := r.pod().Spec.Containers[0]
	if v := r.pod().Spec.Volumes; len(v) != 1 || v[0].Secret.SecretName != "cert" || len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != "/tls" {
		t.Errorf("volumes %+v, %+v", v, c.VolumeMounts)
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("probe %+v", p.HTTPGet)
		}
	}
	if e := r.monitor.Spec.Endpoints[0]; e.Scheme != "https" || e.Authorization.Credentials.Name != "keys" {
		t.Errorf("monitor %+v", e)
	}
	open := must(t, values{"auth": values{"insecure": true}})
	wants(t, open, "QUIPU_INSECURE", "true", "")
	wants(t, open, "QUIPU_API_KEY", "", "")
}

// What can't work is refused before anything is installed.
func TestRefused(t *testing.T) {
	f := func(text string, v values) {
		t.Helper()
		if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", v, err, text)
		}
	}
	f("auth: set apiKey", values{})
	f("several servers need a store that they share", values{"auth": key, "replicas": 2})
	f("set apiKey or existingSecret, not both", values{"auth": values{"apiKey": "k", "existingSecret": "keys"}})
	f("set url or existingSecret, not both", values{"auth": key, "store": values{"url": "redis://x", "existingSecret": "store"}})
}
