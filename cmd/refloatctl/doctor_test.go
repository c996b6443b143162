package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/test/pulsartest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPulsarUsage: what is wrong with the command line shows without a broker.
func TestPulsarUsage(t *testing.T) {
	t.Parallel()
	const at, dead = " --pulsar pulsar://127.0.0.1:1", " --pulsar pulsar://127.0.0.1:1 --pulsar-admin http://127.0.0.1:1"
	plain := recordingFile("plain")
	for _, c := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"help of doctor", "doctor --help", exitFine, "Exit codes: 0 no errors"},
		{"help of topics", "topics create --help", exitFine, "--accept-partitions N"},
		{"help of record", "record --help", exitFine, "Examples:"},
		{"help of feed", "feed --help", exitFine, "Examples:"},
		{"a token that others see", "doctor --print-config --pulsar-token s3cret", exitUsage, "--pulsar-token: other users of this machine can see the command line: set REFLOAT_PULSAR_TOKEN"},

		{"doctor of nothing", "doctor", exitUsage, "--pulsar URL is required"},
		{"doctor without admin", "doctor" + at, exitUsage, "--pulsar-admin URL is required"},
		{"doctor in another form", "doctor" + dead + " -o yaml", exitUsage, `-o "yaml"`},
		{"doctor of an archive alone", "doctor --archive x", exitUsage, "--archive is compared with the topics"},
		{"doctor with an argument", "doctor now" + dead, exitUsage, "doctor takes no argument"},
		{"doctor with a bad URL", "doctor --pulsar localhost --pulsar-admin http://x", exitUsage, "--pulsar: want pulsar://host:port"},
		{"topics: needs a subcommand", "topics", exitUsage, "topics: needs a subcommand: create"},
		{"topics create of nothing", "topics create", exitUsage, "--pulsar URL is required"},
		{"topics create without admin", "topics create" + at, exitUsage, "--pulsar-admin URL is required"},
		{"topics create of less than none", "topics create --partitions -1" + dead, exitUsage, "--partitions -1"},
		{"topics create that retains for a moment", "topics create --retain-decisions 1h" + dead, exitUsage, "--retain-decisions 1h: want forever, or at least 24h"},
		{"topics create that retains for something", "topics create --retain-events long" + dead, exitUsage, `--retain-events "long"`},
		{"topics create that nothing holds", "topics create --retain-decisions 9d --no-ingester" + dead, exitUsage, "idle partition"},
		{"record of nothing", "record" + at + " --out x.jsonl.gz", exitUsage, "--topic TOPIC is required"},
		{"record to nowhere", "record --topic x" + at, exitUsage, "--out FILE.jsonl.gz or DIR is required"},
		{"record without a cluster", "record --topic x --out x.jsonl.gz", exitUsage, "--pulsar URL is required"},
		{"record from somewhere", "record --topic x --out x.jsonl.gz --from here" + at, exitUsage, `--from "here"`},
		{"record to somewhere", "record --topic x --out x.jsonl.gz --to 1:2" + at, exitUsage, `--to "1:2"`},
		{"record of a negative partition", "record --topic x --out x.jsonl.gz --partition -2" + at, exitUsage, "--partition -2"},
		{"record to an end that never comes", "record --topic x --out x.jsonl.gz --follow --to 1:2:3" + at, exitUsage, "--follow and --to: give only one"},
		{"feed of nothing", "feed" + at, exitUsage, "requires at least 1 arg(s)"},
		{"feed to nowhere", "feed " + plain, exitUsage, "--pulsar URL: where to feed"},
		{"feed with a bad pace", "feed " + plain + at + " --pace fast", exitUsage, `--pace "fast"`},

		{"feed of no file", "feed nowhere.jsonl.gz" + at, exitEnvironment, "no such file"},
		{"doctor of no cluster", "doctor" + dead, exitEnvironment, "admin API is unreachable"},
		{"topics create in no cluster", "topics create" + dead, exitEnvironment, "admin API is unreachable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := ctl(t, strings.Fields(c.args)...).exits(t, c.code).prints(t, c.want)
			if strings.Contains(r.out+r.err, "s3cret") {
				t.Errorf("a secret is printed: %s%s", r.out, r.err)
			}
			if c.code == exitFine {
				return
			}
			if r.out != "" || !strings.HasPrefix(r.err, "refloatctl") {
				t.Errorf("stdout %q, stderr %q", r.out, r.err)
			}
		})
	}
}

// doctorContract is the machine-readable contract of `doctor -o json`.
var (
	findingContract = []field{
		{"record", nil, oneOf("Finding")},
		{"severity", nil, oneOf("ok", "warn", "error")},
		{"code", nil, func(v any) bool {
			s, _ := v.(string)
			return len(s) == 5 && strings.HasPrefix(s, "RD0")
		}},
		{"about", nil, isText},
		{"what", nil, isText},
	}
	holderContract = []field{
		{"record", nil, oneOf("Holder")},
		{"partition", nil, isCount},
		{"eventsBehind", nil, isCount},
		{"decisionsBehind", nil, isCount},
	}
)

// onPulsar are the flags of a cluster and topics of their own.
func onPulsar(t *testing.T, b *pulsartest.Broker) func(args ...string) result {
	t.Helper()
	tenant, namespace, _ := strings.Cut(b.Namespace(t), "/")
	flags := []string{"--pulsar", b.URL, "--pulsar-tenant", tenant, "--pulsar-namespace", namespace}
	return func(args ...string) result {
		t.Helper()
		all := append(args, flags...)
		if args[0] == "doctor" || args[0] == "topics" {
			all = append(all, "--pulsar-admin", b.AdminURL)
		}
		return ctl(t, all...)
	}
}

// TestPulsar runs the commands against a real broker.
func TestPulsar(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a Pulsar broker")
	}
	b := pulsartest.Start(t, pulsartest.Options{})
	t.Run("topics", func(t *testing.T) { testTopics(t, b) })
	t.Run("feed and record", func(t *testing.T) { testFeedAndRecord(t, b) })
}

func testTopics(t *testing.T, b *pulsartest.Broker) {
	run := onPulsar(t, b)
	run("doctor").exits(t, exitFinding).prints(t, "error RD010  persistent://", "does not exist", "3 errors, ")
	run("topics", "create").exits(t, exitFinding).prints(t, "events does not exist", "--create-events --partitions N")
	run("topics", "create", "--create-events", "--partitions", "3", "--dry-run").exits(t, exitFine).prints(t, "would  create persistent://")
	run("doctor").exits(t, exitFinding).prints(t, "3 errors, ")
	run("topics", "create", "--create-events", "--partitions", "3").exits(t, exitFine).prints(t, "did    create persistent://", "with 3 partitions", "refloat-evaluator", "refloat-ingester")
	if r := run("topics", "create").exits(t, exitFine).prints(t, "nothing to do"); strings.Contains(r.out, "did ") {
		t.Errorf("the second time: %s", r.out)
	}
	r := run("doctor").exits(t, exitFine).prints(t, "0 errors, 3 warnings, ", "PARTITION", "fix: start evaluators")
	if r.err != "" || strings.ContainsAny(r.out, rewriting) {
		t.Errorf("stderr %q, or the output is no plain text", r.err)
	}
	kinds := map[string]int{}
	for line := range strings.Lines(run("doctor", "-o", "json").exits(t, exitFine).out) {
		o := jsonLine(t, line)
		kinds[o.text("record")]++
		contract := findingContract
		if o.text("record") == "Holder" {
			contract = holderContract
		}
		if err := o.follows(contract); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		if _, why := o["why"]; why != (o.text("severity") == "warn") {
			t.Errorf("a reason where all is well, or none where it is not: %s", line)
		}
	}
	if kinds["Holder"] != 3 || kinds["Finding"] < 25 || len(kinds) != 2 {
		t.Errorf("lines %v", kinds)
	}
	if r := run("doctor", "--quiet").exits(t, exitFine); strings.Contains("\n"+r.out, "\nok ") || strings.Contains(r.out, "PARTITION") {
		t.Errorf("not quiet: %s", r.out)
	}
	// The client's way is another than the admin's.
	ctl(t, "doctor", "--pulsar", "pulsar://127.0.0.1:1", "--pulsar-admin", b.AdminURL, "--pulsar-events", eventsOf(run)).
		exits(t, exitEnvironment).prints(t, "error RD001  client", "refloatctl: the client cannot reach the brokers")
}

// eventsOf is the full name of events.
func eventsOf(run func(...string) result) string {
	_, rest, _ := strings.Cut(run("topics", "create", "--dry-run").out, "as is  ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

func testFeedAndRecord(t *testing.T, b *pulsartest.Broker) {
	run := onPulsar(t, b)
	run("topics", "create", "--create-events", "--partitions", "3").exits(t, exitFine)
	plain, chaos := recordingFile("plain"), recordingFile("chaos")
	entries, err := recording.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "plain.jsonl.gz")
	writeRecording(t, half, entries[:700])
	run("feed", half).exits(t, exitFine).prints(t, "700 messages, 700 of them new")
	run("feed", plain, chaos).exits(t, exitFine).prints(t, "1559 messages, 859 of them new", "630 messages, 630 of them new")
	run("feed", plain, chaos).exits(t, exitFine).prints(t, "1559 messages, 0 of them new", "630 messages, 0 of them new")
	run("feed", plain, "--pulsar-events", "nowhere").exits(t, exitEnvironment).prints(t, "nowhere")
	run("feed", plain, "--pulsar-events", "policies").exits(t, exitEnvironment).prints(t, "the recordings need 3 partitions", "--create-events")

	// A recording of what was fed is the recordings again.
	out := filepath.Join(t.TempDir(), "out.jsonl.gz")
	r := run("record", "--topic", "events", "--out", out).exits(t, exitFine).prints(t, "2189 messages of 3 partitions", "partition 2: ")
	if r.err != "" { // this broker numbers messages, so the beginning is proven
		t.Errorf("stderr: %s", r.err)
	}
	fed, err := recording.ReadFile(chaos)
	if err != nil {
		t.Fatal(err)
	}
	compareEntries(t, append(entries, fed...), out)
	run("record", "--topic", "events", "--out", out).exits(t, exitEnvironment).prints(t, "already exists")
	run("record", "--topic", "events", "--out", out+".gz", "--from", "0:0:0").exits(t, exitUsage).prints(t, "choose one with --partition")
	run("record", "--topic", "nowhere", "--out", out+"2.jsonl.gz").exits(t, exitEnvironment).prints(t, "nowhere")

	// A copy is the topic again, position by position, also in two parts.
	dir := filepath.Join(t.TempDir(), "copy")
	cut := publishText(entries[400])
	run("record", "--topic", "events", "--out", dir, "--to", cut).exits(t, exitFine)
	run("record", "--topic", "events", "--out", dir).exits(t, exitFine)
	run("record", "--topic", "events", "--out", dir).exits(t, exitFine).prints(t, "0 messages of 3 partitions")
	run("record", "--topic", "policies", "--out", dir).exits(t, exitEnvironment).prints(t, "3 partitions")
	whole := filepath.Join(t.TempDir(), "whole")
	run("record", "--topic", "events", "--out", whole).exits(t, exitFine).prints(t, "2189 messages of 3 partitions")
	one, two := openCopy(t, dir), openCopy(t, whole)
	n := 0
	for p := range 3 {
		want := messagesIn(t, two, p)
		n += len(want)
		if diff := cmp.Diff(want, messagesIn(t, one, p)); diff != "" {
			t.Errorf("partition %d, copied in two parts:\n%s", p, diff)
		}
		for i, m := range want {
			if m.Origin.Recording != "plain" && m.Origin.Recording != "chaos" || m.Position == m.Origin.Position {
				t.Fatalf("message %d of partition %d is %+v", i, p, m)
			}
		}
	}
	if n != 2189 {
		t.Errorf("the copy holds %d messages", n)
	}

	// A part, by the topic's own positions.
	at := messagesIn(t, two, 1)[10].Position
	part := filepath.Join(t.TempDir(), "part")
	run("record", "--topic", "events", "--out", part, "--partition", "1", "--from", at.String(), "--to", at.String()).exits(t, exitFine).prints(t, "1 message of 1 partition")
	if got := messagesIn(t, openCopy(t, part), 1); len(got) != 1 || got[0].Position != at {
		t.Errorf("part: %+v", got)
	}
	run("record", "--topic", "events", "--out", part+"2", "--partition", "1", "--to", "999999:0:0").exits(t, exitEnvironment).prints(t, "--to 999999:0:0 is after the end")
}

func publishText(e recording.Entry) string { return query.TimeText(e.Message.Publish) }

// compareEntries compares a recording with entries, partition by partition.
func compareEntries(t *testing.T, want []recording.Entry, file string) {
	t.Helper()
	got, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	by := func(entries []recording.Entry) map[int][]eventlog.Message {
		m := map[int][]eventlog.Message{}
		for _, e := range entries {
			msg := e.Message
			msg.Origin = eventlog.Origin{}
			m[e.Partition] = append(m[e.Partition], msg)
		}
		return m
	}
	if diff := cmp.Diff(by(want), by(got)); diff != "" {
		t.Errorf("recorded, they are others:\n%s", tailOf(diff))
	}
}

func openCopy(t *testing.T, dir string) eventlog.Topic {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	topic, err := topiccopy.Topic(log)
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// TestOneProcess: a process has a connection, and so a port, for each thing that it does; it is shown as one.
func TestOneProcess(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	h := doctor.Clients{Evaluator: doctor.Party{Name: "evaluator-0", Address: "10.0.0.1:40001"}, Owner: doctor.Party{Name: "evaluator-0", Address: "10.0.0.1:40002", Since: "then"}, Ingester: doctor.Party{Address: "[fd00::1]:7"}}
	if err := reportTable(&out, nil, []doctor.Clients{h}, false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "evaluator-0 10.0.0.1 "); n != 2 || !strings.Contains(out.String(), " fd00::1 ") {
		t.Errorf("the same process is not shown in the same way:\n%s", &out)
	}
}
