package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common/util"
	"sigs.k8s.io/yaml"
)

// resources has the path of each kind that the chart may hold, below /apis or /api. The kinds of Prometheus's operator
// are missing: a server knows them only by definitions that are in no Go module; TestFieldsAreChecked reads them.
var resources = map[string]string{
	"v1 ConfigMap":                       "api/v1/namespaces/%s/configmaps",
	"v1 Service":                         "api/v1/namespaces/%s/services",
	"v1 ServiceAccount":                  "api/v1/namespaces/%s/serviceaccounts",
	"apps/v1 Deployment":                 "apis/apps/v1/namespaces/%s/deployments",
	"apps/v1 StatefulSet":                "apis/apps/v1/namespaces/%s/statefulsets",
	"batch/v1 Job":                       "apis/batch/v1/namespaces/%s/jobs",
	"networking.k8s.io/v1 Ingress":       "apis/networking.k8s.io/v1/namespaces/%s/ingresses",
	"networking.k8s.io/v1 NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/%s/networkpolicies",
	"policy/v1 PodDisruptionBudget":      "apis/policy/v1/namespaces/%s/poddisruptionbudgets",
}

// TestServerAccepts: a real kube-apiserver accepts every object of the chart by server-side apply with strict fields,
// and the change to another image, and refuses an unknown field.
func TestServerAccepts(t *testing.T) {
	if os.Getenv("KUBERNETES") == "" {
		t.Skip("set KUBERNETES=1, as `make chart-server` does; building the server takes minutes")
	}
	s := startServer(t)
	applied := 0
	for _, set := range sets {
		s.mustApply("api/v1/namespaces/"+set, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+set+"}\n")
		values := valuesOf(t, set)
		for _, tag := range []string{"1", "2"} {
			documents, err := render(load(t), util.MergeTables(map[string]any{"image": map[string]any{"tag": tag}}, values))
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents {
				if tag == "2" && strings.Contains(document, "helm.sh/hook") {
					continue // Helm deletes it before it makes the next one
				}
				if s.accepts(set, document) {
					applied++
				}
			}
		}
	}
	t.Logf("%d objects were accepted", applied)
	if applied < 20 {
		t.Errorf("%d objects show nothing", applied)
	}
}

// accepts applies an object in a namespace, unless its kind is one of Prometheus's operator.
func (s *server) accepts(namespace, document string) bool {
	s.t.Helper()
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(document), &o); err != nil {
		s.t.Fatal(err)
	}
	if o.APIVersion == "monitoring.coreos.com/v1" {
		return false
	}
	path := resources[o.APIVersion+" "+o.Kind]
	if path == "" {
		s.t.Fatalf("%s %s has no path", o.APIVersion, o.Kind)
	}
	path = fmt.Sprintf(path, namespace) + "/" + o.Metadata.Name
	document = strings.ReplaceAll(document, "namespace: refloat\n", "namespace: "+namespace+"\n")
	s.mustApply(path, document)
	if s.apply(path, "unknown: 1\n"+document) == nil {
		s.t.Errorf("the server accepts a field that %s does not have", o.Kind)
	}
	return true
}

type server struct {
	t      *testing.T
	url    string
	client *http.Client
}

const serverToken = "token-of-the-test"

// startServer builds etcd and the server from their own module, and starts them.
func startServer(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "-C", "../kubernetes", "build", "-p", "1", "-ldflags=-s -w", "-o", dir+"/",
		"k8s.io/kubernetes/cmd/kube-apiserver", "go.etcd.io/etcd/server/v3")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	ports := freePorts(t, 3)
	etcd := "http://127.0.0.1:" + ports[0]
	peer := "http://127.0.0.1:" + ports[1]
	run(t, filepath.Join(dir, "server"), "--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	key, tokens := filepath.Join(dir, "accounts.key"), filepath.Join(dir, "tokens.csv")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	write(t, tokens, []byte(serverToken+",admin,admin,system:masters\n"))
	run(t, filepath.Join(dir, "kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", dir, "--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key)
	s := &server{t: t, url: "https://127.0.0.1:" + ports[2] + "/", client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it signs its certificate itself
	}}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.request(ctx, http.MethodGet, "readyz", "")
		if err == nil {
			return s
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the server is not ready: %v", err)
		}
	}
}

func (s *server) mustApply(path, document string) {
	s.t.Helper()
	if err := s.apply(path, document); err != nil {
		s.t.Errorf("%s: %v", path, err)
	}
}

func (s *server) apply(path, document string) error {
	return s.request(s.t.Context(), http.MethodPatch, path+"?fieldManager=helm&fieldValidation=Strict", document)
}

func (s *server) request(ctx context.Context, method, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+serverToken)
	r.Header.Set("Content-Type", "application/apply-patch+yaml")
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// run starts a program until the end of the test.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed\n%s", filepath.Base(program), out.String()[max(0, out.Len()-3000):])
		}
	})
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // only now: the ports differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}
