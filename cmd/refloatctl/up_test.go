package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/test/model"
)

// TestUpAgain checks that on a drained directory, up adds no event, no decision and no row, and that its content
// follows from the logs.
func TestUpAgain(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	up := func(feeds ...string) result {
		args := []string{"up", "--data", data, "--policies", testPolicies, "--exit-when-drained"}
		for _, f := range feeds {
			args = append(args, "--feed", recordingFile(f))
		}
		return ctl(t, args...).exits(t, exitFine)
	}
	printed := func() string {
		return ctl(t, "get", "decisions", "--all", "--data", data, "-o", "json").exits(t, exitFine).out +
			ctl(t, "get", "jobs", "--data", data, "-o", "json").exits(t, exitFine).out
	}
	up("chaos").prints(t, "written=630 already_there=0", "Decisions", "JobRequeued", "GangRetry", "Try next", "refloatctl explain ")
	before := printed()
	up("chaos").prints(t, "written=0 already_there=630")
	up()
	if after := printed(); after != before {
		t.Errorf("again, other rows: %s", firstDifference(before, after))
	}
	// A second recording comes after the first; then both are there.
	up("chaos", "preempted").prints(t, "written=0 already_there=630", "written=288 already_there=0")
	both := printed()
	up("preempted", "chaos").prints(t, "written=0 already_there=630", "written=0 already_there=288")
	if after := printed(); after != both || both == before {
		t.Errorf("after two feeds, other rows: %s", firstDifference(both, after))
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine).prints(t, "deciding 918 messages again")
	rowsFollow(t, data)
}

// TestSummaryCommands: the commands that up proposes work as they stand.
func TestSummaryCommands(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	r := ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
	_, next, ok := strings.Cut(r.out, "Try next\n")
	if !ok {
		t.Fatalf("nothing to try next:\n%s", r.out)
	}
	tried := 0
	for line := range strings.Lines(next) {
		_, command, _ := strings.Cut(line, "bin/refloatctl ")
		for part := range strings.SplitSeq(command, " && bin/refloatctl ") {
			ctl(t, strings.Fields(part)...).exits(t, exitFine)
			tried++
		}
	}
	if tried < 5 {
		t.Errorf("only %d commands in:\n%s", tried, next)
	}
}

// slowly starts up with a feed that lasts some ten seconds, and returns when it
// is being fed.
func slowly(t *testing.T, data string, more ...string) (*process, *tail) {
	t.Helper()
	h := &history{file: recordingFile("plain"), messages: messagesOf(t, recordingFile("plain"))}
	p := start(t, append([]string{"up", "--data", data, "--policies", testPolicies, "--feed", h.file, "--pace", "5x"}, more...)...)
	x := openTail(t, data, h, p)
	x.await(p, nil)
	return p, x
}

// awaitJobDB waits until the process that has just started has created its job database. Before, reading fails.
func awaitJobDB(t *testing.T, at ...string) {
	t.Helper()
	until(t, "there is a job database", func() bool {
		r := ctl(t, append([]string{"get", "jobs", "--limit", "1"}, at...)...)
		if r.code != exitFine {
			r.exits(t, exitEnvironment).prints(t, "there is no job database yet")
		}
		return r.code == exitFine
	})
}

// TestSignals checks that SIGTERM and SIGINT stop up cleanly at any moment of a feed; what was decided is
// verified, and up continues from there.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			early := start(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--pace", "5x")
			until(t, "the events log is being made", func() bool {
				_, err := os.Stat(app.Dir(data).Events())
				return err == nil
			})
			early.signal(t, s)
			early.exits(t, exitFine)

			p, x := slowly(t, data, "--exit-when-drained")
			for x.total < 100 {
				x.await(p, nil)
			}
			awaitJobDB(t, "--data", data)
			p.signal(t, s)
			p.exits(t, exitInterrupted)
			text := p.err.text()
			if strings.Contains(text, "ERROR") {
				t.Errorf("it complains:\n%s", text)
			}
			if !regexp.MustCompile(`interrupted before everything was decided: [0-9]+ of 1559 messages were fed, [0-9]+ decisions are in the job database`).MatchString(text) {
				t.Errorf("it does not say how far it came:\n%s", text)
			}
			if out := p.out.text(); out != "" {
				t.Errorf("it sums up what it did not finish:\n%s", out)
			}
			x.pump()
			r := ctl(t, "verify", "--data", data, "--allow-waiting").exits(t, exitFine)
			t.Logf("%d of 1559 messages fed; %s", x.total, r.out)
			rowsFollow(t, data)
			ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained", "--quiet").exits(t, exitFine)
			rowsFollow(t, data)
			want := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", testPolicies, "-o", "json").exits(t, exitFine).out
			if got := ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out; got != want {
				t.Errorf("after a clean end, other decisions: %s", firstDifference(want, got))
			}
		})
	}
}

// TestSecondUp: one up at a time on a directory.
func TestSecondUp(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, x := slowly(t, data)
	for range 2 {
		ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain")).exits(t, exitEnvironment).
			prints(t, "another writer, process ", `("refloatctl up"), has `+app.Dir(data).Events()+" open: stop it first", "locked by another process")
	}
	ctl(t, "import", recordingFile("chaos"), "--log", app.Dir(data).Events()).exits(t, exitEnvironment).prints(t, "another writer")
	if x.total < 1559 {
		x.await(p, nil) // the first one continues
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
	ctl(t, "verify", "--data", data, "--allow-waiting").exits(t, exitFine)
}

// TestWhileUp: get, explain, replay and verify read a directory on which up
// works, and it serves /metrics, /healthz and /readyz.
func TestWhileUp(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("chaos"), "--listen", "127.0.0.1:0")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.err.await(t, "address="))[1]
	for _, path := range []string{"/healthz", "/readyz"} {
		until(t, path, func() bool { code, body := get(t, address, path); return code == http.StatusOK && body == "ok\n" })
	}
	if code, _ := get(t, address, "/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
	p.err.await(t, "feed complete")
	awaitJobDB(t, "--data", data)
	want := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", testPolicies, "-o", "json").exits(t, exitFine).out
	n := strings.Count(want, "\n")
	until(t, "everything is decided and in the job database", func() bool {
		r := ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine)
		if r.err != "" || len(r.out) > len(want) || !prefixes(want, r.out) {
			t.Fatalf("get decisions while up runs: %s\n%s", r.err, firstDifference(want, r.out))
		}
		return r.out == want
	})
	var page string
	until(t, "the metrics count them", func() bool {
		var code int
		if code, page = get(t, address, "/metrics"); code != http.StatusOK {
			t.Fatalf("/metrics: %d", code)
		}
		return sumOf(page, "refloat_decisions_total") == n && sumOf(page, "refloat_answered_messages_total") == 630
	})
	for _, name := range []string{
		"refloat_not_decided_total", "refloat_read_back_seconds_count", "refloat_partition_live", "refloat_jobdb_rows_total", "refloat_run_hours_total",
		"refloat_jobdb_last_event_timestamp_seconds", "refloat_policy_generations_unusable_total", "go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
	if live := sumOf(page, "refloat_partition_live"); live != partitions {
		t.Errorf("%d partitions are live", live)
	}
	job := firstJob(t, data)
	ctl(t, "explain", job, "--data", data).exits(t, exitFine).prints(t, job, "Decision", "Where")
	ctl(t, "get", "job", job, "--data", data).exits(t, exitFine).prints(t, job)
	ctl(t, "get", "jobs", "--data", data).exits(t, exitFine).prints(t, "QUEUE")
	ctl(t, "verify", "--data", data).exits(t, exitFine).prints(t, fmt.Sprintf("the same %d decisions", n))
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
	if _, err := http.Get("http://" + address + "/healthz"); err == nil {
		t.Error("it serves after its end")
	}
	rowsFollow(t, data)
}

// prefixes says whether each partition's lines of part begin those of all.
func prefixes(all, part string) bool {
	rest := map[int64][]string{}
	split := func(s string, each func(p int64, line string)) {
		for line := range strings.Lines(s) {
			_, number, _ := strings.Cut(line, `"partition":`)
			p, _ := strconv.ParseInt(number[:1], 10, 64)
			each(p, line)
		}
	}
	split(all, func(p int64, line string) { rest[p] = append(rest[p], line) })
	same := true
	split(part, func(p int64, line string) {
		if len(rest[p]) == 0 || rest[p][0] != line {
			same = false
			return
		}
		rest[p] = rest[p][1:]
	})
	return same
}

func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	r, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// sumOf adds up a metric over its labels.
func sumOf(page, name string) int {
	sum := 0.0
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
			sum += v
		}
	}
	return int(sum)
}

// TestPolicyChange: a change of the files is a new generation while up runs;
// files with a mistake leave in force what is.
func TestPolicyChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, policies := filepath.Join(dir, "data"), filepath.Join(dir, "policies")
	if err := os.CopyFS(policies, os.DirFS(testPolicies)); err != nil {
		t.Fatal(err)
	}
	p := start(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("preempted"))
	p.err.await(t, "feed complete")
	writeFile(t, policies, "settings2.yaml", "kind: Queue\nname: risk-batch\nretryPolicies: [oops\n")
	p.err.await(t, "policy files cannot be used; the current generation stays in force")
	writeFile(t, policies, "settings2.yaml", "kind: Queue\nname: risk-batch\nretryPolicies: [infra]\n")
	for i := range 2 {
		until(t, "the second generation is in force", func() bool {
			acts := contents(t, data, i).Activations
			return len(acts) > 0 && acts[len(acts)-1].Generation == 2
		})
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
	r := ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("preempted"), "--feed", recordingFile("chaos"), "--exit-when-drained")
	r.exits(t, exitEnvironment).prints(t, "the feeds need 3 partitions") // chaos
	if n := len(contents(t, data, 0).Decisions) + len(contents(t, data, 1).Decisions); n != 55 {
		t.Errorf("%d decisions: something was fed", n)
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine)
}

// damaged flips a byte of a file, at an offset or, if text is set, within it.
func damaged(t *testing.T, path string, offset int, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != "" {
		i := bytes.Index(b[offset:], []byte(text))
		if i < 0 {
			t.Fatalf("%s does not hold %q", path, text)
		}
		offset += i + 1
	}
	b[offset] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedEvents checks that a flipped byte in the middle of the events stops every reader, and that the
// message names file and position.
func TestDamagedEvents(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	forgetRows(t, data)
	segment := segments(t, app.Dir(data).Events())[1]
	damaged(t, segment, 20_000, "01m7x")
	where := regexp.MustCompile(regexp.QuoteMeta(segment) + `.*\b\d+`)
	for _, args := range []string{
		"up --policies " + testPolicies + " --feed " + recordingFile("retried") + " --exit-when-drained --data " + data,
		"up --policies " + testPolicies + " --exit-when-drained --data " + data,
		"replay --policies " + testPolicies + " --log " + app.Dir(data).Events(),
		"replay --verify --data " + data,
		"import " + recordingFile("retried") + " --log " + app.Dir(data).Events(),
	} {
		code := exitEnvironment
		if strings.Contains(args, "--verify") { // which looks for damage
			code = exitFinding
		}
		r := ctl(t, strings.Fields(args)...).exits(t, code).prints(t, "corrupt")
		if !where.MatchString(r.err + r.out) {
			t.Errorf("%s does not name the file and the place: %s", args, r.err+r.out)
		}
	}
}

// forgetRows removes the job database, so that up must read from the beginning.
func forgetRows(t *testing.T, data string) {
	t.Helper()
	if err := os.Remove(app.Dir(data).JobDB()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedDecisions: the same in the decision log.
func TestDamagedDecisions(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	forgetRows(t, data)
	segment := segments(t, app.Dir(data).Decisions())[2]
	damaged(t, segment, 3000, "01m7x") // within a job id of a record
	where := regexp.MustCompile(regexp.QuoteMeta(segment) + `.*\b\d+`)
	for _, args := range []string{
		"replay --verify --data " + data,
		"up --policies " + testPolicies + " --exit-when-drained --data " + data,
	} {
		code := exitEnvironment
		if strings.Contains(args, "--verify") { // which looks for damage
			code = exitFinding
		}
		r := ctl(t, strings.Fields(args)...).exits(t, code).prints(t, "corrupt")
		if !where.MatchString(r.err + r.out) {
			t.Errorf("%s does not name the file and the place: %s", args, r.err+r.out)
		}
	}
}

// forged writes the decision log of partition 0 anew, changed, with all
// checksums, links and claims as they should be.
func forged(t *testing.T, data string, change func(i int, e *chain.Envelope) (keep bool)) {
	t.Helper()
	dir := app.Dir(data).Decisions()
	old, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var all [partitions][]eventlog.Message
	for p := range all {
		all[p] = readAll(t, old, p)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var link chain.Hash
	for p := range all {
		for i, m := range all[p] {
			payload := m.Payload
			if p == 0 {
				e, err := chain.DecodeEnvelope(payload)
				if err != nil {
					t.Fatal(err)
				}
				if !change(i, e) {
					continue
				}
				e.Link = link
				payload = e.Append(nil)
				link = chain.Link(payload)
			}
			if err := log.AppendSync(context.Background(), p, []eventlog.Message{{Payload: payload}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestForgedDecisions: a decision log that fits together, but does not follow
// from its input, is a finding that names the first difference.
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	// decision finds the first decision among an envelope's records.
	decision := func(e *chain.Envelope) (int, *chain.Decision) {
		for i, b := range e.Records {
			r, err := chain.DecodeRecord(b)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := r.(*chain.Decision); ok {
				return i, d
			}
		}
		return -1, nil
	}
	for _, c := range []struct {
		name   string
		change func(e *chain.Envelope, i int, d *chain.Decision)
		want   string
		up     int // exit code
	}{
		{"nothing", func(*chain.Envelope, int, *chain.Decision) {}, "", exitFine},
		{"a byte of a job id", func(e *chain.Envelope, i int, d *chain.Decision) {
			d.JobID = "x" + d.JobID[1:]
			e.Records[i] = chain.AppendRecord(nil, d)
		}, "on run ", exitEnvironment},
		{"a later retry", func(e *chain.Envelope, i int, d *chain.Decision) {
			d.Requeue, d.RetryAfter, d.ReadyAfter, d.PodName = true, d.Time+1, d.Time+1, "armada-x-0-1"
			e.Records[i] = chain.AppendRecord(nil, d)
		}, "the log has JobRequeued", exitFine}, // up goes by the log's verdicts
		{"a record taken out", func(e *chain.Envelope, i int, _ *chain.Decision) {
			e.Records = slices.Delete(slices.Clone(e.Records), i, i+1)
		}, "decision log differs from its input", exitEnvironment},
		{"a record put in", func(e *chain.Envelope, i int, _ *chain.Decision) {
			e.Records = slices.Insert(slices.Clone(e.Records), i, e.Records[i])
		}, "decision log differs from its input", exitEnvironment},
		{"a message passed over", func(e *chain.Envelope, _ int, _ *chain.Decision) { e.InCount-- }, "a log lacks what it once held", exitEnvironment},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, done := drainedCopy(t), false
			forged(t, data, func(_ int, e *chain.Envelope) bool {
				if i, d := decision(e); d != nil && !done {
					done = true
					c.change(e, i, d)
				}
				return true
			})
			if c.want == "" {
				ctl(t, "verify", "--data", data).exits(t, exitFine)
				return
			}
			r := ctl(t, "verify", "--data", data).exits(t, exitFinding).prints(t, "partition 0: ", c.want)
			if strings.Contains(r.out, "verified") || r.err != "" {
				t.Errorf("stdout: %s\nstderr: %s", r.out, r.err)
			}
			forgetRows(t, data)
			ctl(t, "up", "--data", data, "--policies", testPolicies, "--exit-when-drained", "--quiet").exits(t, c.up)
		})
	}
}

// TestBrokenChain checks that a missing or changed envelope in the middle of a decision log is a finding, also
// without a later claim.
func TestBrokenChain(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "data")
	up := []string{"up", "--data", whole, "--policies", testPolicies, "--quiet", "--exit-when-drained"}
	for _, name := range recordings { // more messages than one envelope covers: behind the claim come at least two
		up = append(up, "--feed", recordingFile(name))
	}
	ctl(t, up...).exits(t, exitFine)
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: app.Dir(whole).Decisions(), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, taken := range []bool{true, false} {
		data := filepath.Join(t.TempDir(), "data")
		for _, dir := range []func(app.Dir) string{app.Dir.Events, app.Dir.Policies} {
			if err := os.CopyFS(dir(app.Dir(data)), os.DirFS(dir(app.Dir(whole)))); err != nil {
				t.Fatal(err)
			}
		}
		broken, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: app.Dir(data).Decisions(), Partitions: partitions})
		if err != nil {
			t.Fatal(err)
		}
		for p := range partitions {
			all := readAll(t, log, p)
			if p == 1 && len(all) < 3 {
				t.Fatalf("%d envelopes have no middle", len(all))
			}
			for i, m := range all {
				m.Payload = bytes.Clone(m.Payload)
				if p == 1 && i == len(all)/2 {
					if taken {
						continue
					}
					m.Payload[3] ^= 1 // in its link
				}
				if err := broken.Append(p, []eventlog.Message{m}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := broken.Close(); err != nil {
			t.Fatal(err)
		}
		ctl(t, "verify", "--data", data).exits(t, exitFinding).prints(t, "partition 1: ", "the chain ends at envelope ")
	}
}

// TestKilledAtBirth kills up while it creates its directory, again and again.
func TestKilledAtBirth(t *testing.T) {
	t.Parallel()
	h := &history{file: recordingFile("preempted"), messages: messagesOf(t, recordingFile("preempted"))}
	data := filepath.Join(t.TempDir(), "data")
	sets := map[string]model.Policies{}
	dir, policies := filepath.Join(t.TempDir(), "policies"), makePolicies(7)
	d := writePolicies(t, dir, policies).Digest()
	sets[string(d[:])] = policies
	args := []string{"up", "--data", data, "--policies", dir, "--allow-empty", "--feed", h.file, "--quiet"}
	for _, created := range []string{
		"logs", "logs/events/META", "logs/decisions", "logs/policies/0000", "state", "jobs.sqlite", "jobs.sqlite-wal", "logs/events/0001",
	} {
		p := start(t, args...)
		until(t, created+" is created", func() bool {
			_, err := os.Stat(filepath.Join(data, created))
			return err == nil
		})
		p.kill()
	}
	ctl(t, append(args, "--exit-when-drained")...).exits(t, exitFine)
	ctl(t, "verify", "--data", data).exits(t, exitFine)
	followed(t, data, h.messages, sets, func(string) bool { return true })
}
