package main

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
)

// hanging is a broker that accepts connections and never answers.
type hanging struct {
	address  string
	accepted chan struct{} // receives at each connection
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	h := &hanging{address: l.Addr().String(), accepted: make(chan struct{}, 1)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			select {
			case h.accepted <- struct{}{}:
			default:
			}
		}
	}()
	return h
}

// TestEndsWhileBrokerHangs: every command that takes --pulsar ends within two
// seconds of Ctrl-C, though the broker answers nothing.
func TestEndsWhileBrokerHangs(t *testing.T) {
	t.Parallel()
	recording := filepath.Join("..", "..", "testdata", "recordings", "plain.jsonl.gz")
	jobDB := "postgres://nobody@127.0.0.1:1/none"
	data := drainedCopy(t)
	first, _, _ := strings.Cut(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out, "\n")
	decision := jsonLine(t, first+"\n")
	job, queue := decision.text("jobId"), decision.text("queue")
	rows := []string{"--job-db", "sqlite://" + app.Dir(data).JobDB()}
	args := map[string]func(dir string) []string{
		"refloatctl doctor":        func(string) []string { return nil },
		"refloatctl topics create": func(string) []string { return nil },
		"refloatctl cutover plan":  func(string) []string { return []string{"--job-db", jobDB} },
		"refloatctl cutover start": func(string) []string { return []string{"--job-db", jobDB} },
		"refloatctl cutover back":  func(string) []string { return []string{"--job-db", jobDB} },
		"refloatctl feed":          func(string) []string { return []string{recording} },
		"refloatctl record": func(dir string) []string {
			return []string{"--topic", "events", "--out", filepath.Join(dir, "out.jsonl.gz")}
		},
		"refloatctl archive create": func(dir string) []string { return []string{filepath.Join(dir, "archive")} },
		"refloatctl verify":         func(string) []string { return nil },
		"refloatctl whatif":         func(string) []string { return []string{"--set", "settings.globalMaxRetries=1"} },
		"refloatctl verify jobdb":   func(string) []string { return rows },
		"refloatctl explain":        func(string) []string { return append([]string{job}, rows...) },
		"refloatctl explain queue":  func(string) []string { return append([]string{queue}, rows...) },
		"refloatctl explain job-set": func(string) []string {
			return append([]string{queue + "/" + decision.text("jobSet")}, rows...)
		},
		"refloatctl test record": func(dir string) []string {
			return append([]string{"--job", job, "--out", filepath.Join(dir, "tests")}, rows...)
		},
	}
	seen := 0
	for _, name := range takingPulsar(newRoot()) {
		more, known := args[name]
		if !known {
			t.Errorf("%s takes --pulsar and is not tried here: add its arguments", name)
			continue
		}
		seen++
		for _, admin := range []bool{true, false} { // what is asked first differs
			t.Run(strings.TrimPrefix(name, "refloatctl ")+map[bool]string{true: "", false: ", the admin API refuses"}[admin], func(t *testing.T) {
				t.Parallel()
				broker := newHanging(t)
				line := append(strings.Fields(name)[1:], more(t.TempDir())...)
				line = append(line, "--pulsar", "pulsar://"+broker.address)
				if admin {
					line = append(line, "--pulsar-admin", "http://"+broker.address)
				} else {
					line = append(line, "--pulsar-admin", "http://127.0.0.1:1")
				}
				endsWith(t, line, broker)
			})
		}
	}
	if seen < len(args) {
		t.Errorf("%d commands take --pulsar, %d are listed here", seen, len(args))
	}
}

func takingPulsar(c *cobra.Command) (names []string) {
	// Commands that hide the flag read only the job database.
	if f := c.Flags().Lookup("pulsar"); c.Runnable() && f != nil && !f.Hidden {
		names = append(names, c.CommandPath())
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden { // goes by another name now
			names = append(names, takingPulsar(sub)...)
		}
	}
	return names
}

// clientGivesUp is less than a command waits for an answer without Ctrl-C: 10 s for a connection, 15 s for a request.
const clientGivesUp = 9 * time.Second

func endsWith(t *testing.T, line []string, broker *hanging) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cmd := newRoot()
	cmd.SetArgs(line)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case <-broker.accepted:
	case err := <-ended: // by itself: it needs more than the admin API has
		t.Logf("it ended by itself: %v", err)
		return
	case <-time.After(time.Minute):
		t.Fatalf("refloatctl %s asks nothing of the broker", strings.Join(line, " "))
	}
	began := time.Now()
	interrupt()
	select {
	case err := <-ended:
		t.Logf("ended %v after Ctrl-C: %v", time.Since(began).Round(time.Millisecond), err)
		if err == nil {
			t.Error("it says that all is well")
		}
		if took := time.Since(began); took > clientGivesUp {
			t.Errorf("it took %v: as long as without Ctrl-C", took)
		}
	case <-time.After(time.Minute):
		t.Fatalf("refloatctl %s does not end", strings.Join(line, " "))
	}
}
