package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/test/issuer"
)

// TestLogin: somebody signs in with a browser or with a code; commands act for him until he signs out or the issuer ends it;
// errors say what to do, and nothing shows a token.
func TestLogin(t *testing.T) {
	t.Parallel()
	i := issuer.New(t, time.Now)
	i.Device = true
	i.Clients["cli"] = ""
	i.Claims = map[string]any{"email": "ann@example.org"}
	dir := t.TempDir()
	auth := writeFile(t, dir, "auth.yaml", fmt.Sprintf(`
oidc:
  issuer: %q
  audience: refloat
  usernameClaim: email
  login: {cliClientID: cli}
permissionGroupMapping:
  bind_retry_policies: [ops]
`, i.URL))
	queue := writeFile(t, dir, "queue.yaml", "kind: Queue\nname: ml\n")
	p, _ := served(t, filepath.Join(dir, "data"), "--api-auth", auth)
	address, err := os.ReadFile(app.Dir(filepath.Join(dir, "data")).APIAddress())
	if err != nil {
		t.Fatal(err)
	}
	server := strings.TrimSpace(string(address))
	env := []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + filepath.Join(dir, "config")}
	secret := regexp.MustCompile(`eyJ|refresh-of-ann|access-of-ann|secret-of-the-issuer`)
	run := func(args ...string) result {
		t.Helper()
		r := ctlIn(t, env, append(args, "--server", server)...)
		if secret.MatchString(r.out + r.err) {
			t.Errorf("%v shows a secret: %s %s", args, r.out, r.err)
		}
		return r
	}
	apply := func() result { t.Helper(); return run("apply", "-f", queue, "--reason", "r") }
	file := filepath.Join(dir, "config", "refloat", "login", server+".json")

	if r := apply(); r.code != exitEnvironment || !strings.Contains(r.err, "refloatctl login --server "+server) {
		t.Errorf("without a sign-in: %d %s", r.code, r.err)
	}
	run("logout").exits(t, exitFine).prints(t, "nobody was signed in")

	// With a browser, which opens the address that is printed.
	in := startIn(t, env, "login", "--server", server)
	in.err.await(t, "code_challenge")
	link := regexp.MustCompile(`http://\S+`).FindString(in.err.text())
	if resp, err := http.Get(link); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	in.exits(t, exitFine)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	apply().exits(t, exitFine)
	run("history").exits(t, exitFine).prints(t, "ann@example.org")

	// The token ends: it is refreshed, once.
	expire := func() {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, regexp.MustCompile(`"expires":"[^"]*"`).ReplaceAll(text, []byte(`"expires":"2026-01-01T00:00:00Z"`)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expire()
	apply().exits(t, exitFine)
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "2026-01-01T") {
		t.Errorf("the refreshed token is not kept: %v", err)
	}
	expire()
	i.Lock()
	i.NoRefresh = true
	i.Unlock()
	if r := apply(); r.code != exitEnvironment || !strings.Contains(r.err, "has ended at the identity provider: run refloatctl login --server "+server) {
		t.Errorf("the issuer ended it: %d %s", r.code, r.err)
	}

	// With a code, which somebody enters elsewhere.
	run("login", "--device").exits(t, exitFine).prints(t, "signed in to "+server)
	apply().exits(t, exitFine)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := apply(); r.code != exitEnvironment || !strings.Contains(r.err, "can be read by others") {
		t.Errorf("a file for everybody: %d %s", r.code, r.err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil || os.Chmod(file, 0o600) != nil {
		t.Fatal(err)
	}
	if r := apply(); r.code != exitEnvironment || !strings.Contains(r.err, "is damaged") {
		t.Errorf("a damaged file: %d %s", r.code, r.err)
	}
	i.Lock()
	i.Refuses = "access_denied"
	i.Unlock()
	if r := run("login", "--device"); r.code != exitEnvironment || !strings.Contains(r.err, "access_denied") {
		t.Errorf("the user refuses: %d %s", r.code, r.err)
	}
	i.Lock()
	i.Device = false
	i.Unlock()
	if r := run("login", "--device"); r.code != exitEnvironment || !strings.Contains(r.err, "no device flow") {
		t.Errorf("no device flow: %d %s", r.code, r.err)
	}
	signOut := func(want string) {
		t.Helper()
		r := run("logout").exits(t, exitFine).prints(t, "signed out")
		if !strings.Contains(r.err, want) || want == "" && r.err != "" {
			t.Errorf("signing out prints %q", r.err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file is left: %v", err)
		}
	}
	signOut("is damaged")
	set := func(change func()) { i.Lock(); change(); i.Unlock() }
	set(func() { i.Device, i.Refuses = true, "" })
	run("login", "--device").exits(t, exitFine)
	signOut("no revocation_endpoint")
	set(func() { i.Revokes, i.NoRefresh = true, false })
	run("login", "--device").exits(t, exitFine)
	signOut("")
	set(func() {
		if !i.NoRefresh {
			t.Error("the refresh token is still valid")
		}
	})
	if r := ctlIn(t, env, "login", "--server", server+","+server); r.code != exitUsage {
		t.Errorf("two servers: %d %s", r.code, r.err)
	}
	if text := p.err.text(); secret.MatchString(text) || !strings.Contains(text, "msg=audit") || !strings.Contains(text, "who=ann@example.org") {
		t.Errorf("the server's log: %s", text)
	}
	p.ends(t)

	plain, _ := served(t, filepath.Join(dir, "plain"))
	address, err = os.ReadFile(app.Dir(filepath.Join(dir, "plain")).APIAddress())
	if err != nil {
		t.Fatal(err)
	}
	if r := ctlIn(t, env, "login", "--server", strings.TrimSpace(string(address))); r.code != exitEnvironment || !strings.Contains(r.err, "has no sign-in") {
		t.Errorf("a server without users: %d %s", r.code, r.err)
	}
	plain.ends(t)
}
