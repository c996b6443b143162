package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// testPolicies is the policy set of the tests.
var testPolicies = filepath.Join("testdata", "policies")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nread the difference, and run with -rewrite if it is intended", path, diff)
	}
}

// imported is a recording's log.
func imported(t *testing.T, file string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "log")
	ctl(t, "import", file, "--log", dir).exits(t, exitFine)
	return dir
}

// TestReplayGolden holds the bytes of `replay -o json`: the first decision of
// each sort in the recordings.
func TestReplayGolden(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	seen := map[string]bool{}
	for _, name := range recordings {
		r := ctl(t, "replay", "--log", imported(t, recordingFile(name)), "--policies", testPolicies, "-o", "json").exits(t, exitFine)
		for line := range strings.Lines(r.out) {
			var d struct {
				Code            string
				Shadow          bool
				SkippedPolicies []string
			}
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatal(err)
			}
			if sort := fmt.Sprint(d); !seen[sort] {
				seen[sort] = true
				out.WriteString(line)
			}
		}
	}
	golden(t, "replay.golden.jsonl", out.String())
}

// field is what the contract says of a field.
type field struct {
	name  string
	when  func(o object) bool // the line has the field exactly then; nil: always
	valid func(v any) bool
}

// object is a line of JSON.
type object map[string]any

func (o object) text(name string) string { s, _ := o[name].(string); return s }

func (o object) number(name string) int64 {
	n, _ := o[name].(json.Number)
	v, _ := n.Int64()
	return v
}

func (o object) position() eventlog.Position {
	p := object(o["position"].(map[string]any))
	return eventlog.Position{Ledger: p.number("ledger"), Entry: p.number("entry"), Batch: int32(p.number("batch"))}
}

func isText(v any) bool   { s, ok := v.(string); return ok && s != "" }
func isString(v any) bool { _, ok := v.(string); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }

func isCount(v any) bool {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	return ok && err == nil && i >= 0
}

func isTexts(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(x any) bool { return !isText(x) })
}

func isTime(v any) bool {
	s, _ := v.(string)
	at, err := time.Parse(time.RFC3339Nano, s)
	return err == nil && at.Location() == time.UTC && at.Format(time.RFC3339Nano) == s
}

func isDelay(v any) bool {
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	return err == nil && d >= 0 && d%time.Millisecond == 0
}

func isDigest(v any) bool {
	s, _ := v.(string)
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}

func isPosition(v any) bool {
	o, ok := v.(map[string]any)
	if !ok || len(o) != 3 {
		return false
	}
	for _, name := range []string{"ledger", "entry", "batch"} {
		if n, ok := o[name].(json.Number); !ok || strings.ContainsAny(n.String(), ".e") {
			return false
		}
	}
	return true
}

func oneOf(values ...string) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && slices.Contains(values, s) }
}

func requeued(o object) bool { return o.text("decision") == "JobRequeued" }

// limited: the rule's limit was checked.
func limited(o object) bool {
	switch o.text("code") {
	case "RuleRetry", "DefaultRetry", "RuleLimit", "PolicyLimit", "GlobalLimit":
		return true
	case "GangRetry", "GroupRestart", "UnitLimit", "RuleFail": // where a member's rule has a limit
		return o["limitFrom"] != nil
	}
	return false
}

// ofMember: the job is a member of a group. unitFailed: the group's verdict was asked.
func ofMember(o object) bool   { return o["group"] != nil }
func unitFailed(o object) bool { return ofMember(o) && o["unitReason"] != nil }

// recordIs returns whether a line is one of these records.
func recordIs(names ...string) func(object) bool {
	return func(o object) bool { return slices.Contains(names, o.text("record")) }
}

// ofGroup are the records of groups; of them, those on one member, and on a unit or a member.
var (
	ofGroup  = recordIs("GroupBound", "GroupFinding", "MemberHeld", "MemberReleased", "MemberRestart", "MemberStopped", "MemberJoined", "UnitEnded", "GroupEnded")
	onMember = recordIs("MemberHeld", "MemberReleased", "MemberRestart", "MemberStopped", "MemberJoined")
	onUnit   = recordIs("MemberHeld", "MemberReleased", "MemberRestart", "MemberStopped", "MemberJoined", "UnitEnded")
)

// contract is the machine-readable contract of decisions.
var contract = []field{
	{"number", nil, func(v any) bool { n, ok := v.(json.Number); i, err := n.Int64(); return ok && err == nil && i > 0 }},
	{"partition", nil, isCount},
	{"position", nil, isPosition},
	{"queue", nil, isText},
	{"jobSet", nil, isText},
	{"jobId", nil, isText},
	{"runId", nil, isText},
	{"runIndex", nil, isCount},
	{"decision", nil, oneOf("JobRequeued", "JobFailed")},
	{"code", nil, oneOf(strings.Fields("RuleRetry RuleIgnore RuleFail DefaultRetry DefaultFail RuleLimit PolicyLimit GlobalLimit KillSwitch FailFast NoPolicy LeaseReturned LegacyLimit GangRetry GangFail GroupRestart GroupEnded UnitLimit")...)},
	{"policy", nil, isString},
	{"rule", nil, isString},
	{"reason", nil, isText},
	{"eventTime", nil, isTime},
	{"delay", requeued, isDelay},
	{"retryAfter", requeued, isTime},
	{"avoidNodes", nil, isTexts},
	{"nodesLeftOut", func(o object) bool { return len(texts(o["avoidNodes"])) == 50 && o["nodesLeftOut"] != nil }, isCount},
	{"podName", requeued, isText},
	{"ruleUsed", limited, isCount},
	{"ruleLimit", limited, isCount},
	{"limitFrom", limited, oneOf("rule", "policy", "global")},
	{"globalUsed", nil, isCount},
	{"globalLimit", nil, isCount},
	{"skippedPolicies", nil, isTexts},
	{"shadow", nil, isBool},
	{"generation", nil, isCount},
	{"policySet", nil, isDigest},
	{"group", ofMember, isText},
	{"part", ofMember, isText},
	{"replica", ofMember, isCount},
	{"index", ofMember, isCount},
	{"policyGeneration", ofMember, isCount},
	{"unitReason", unitFailed, isText},
	{"groupAction", unitFailed, oneOf("FailGroup", "RestartGroup", "RestartPart", "RestartUnit", "Leave", "Halt")},
	{"groupRule", unitFailed, isString},
	{"restartsUsed", unitFailed, isCount},
	{"maxRestarts", unitFailed, isCount},
}

// otherContract is that of `--all` for what is no decision.
var otherContract = []field{
	{"record", nil, oneOf("NotDecided", "Parked", "RetryReady", "GroupBound", "GroupFinding", "MemberHeld", "MemberReleased", "MemberRestart", "MemberStopped", "MemberJoined", "UnitEnded", "GroupEnded")},
	{"partition", nil, isCount},
	{"position", nil, isPosition},
	{"reason", func(o object) bool {
		return recordIs("NotDecided", "Parked", "GroupFinding")(o) || o["reason"] != nil && recordIs("UnitEnded", "GroupEnded")(o)
	}, isText},
	{"jobId", func(o object) bool {
		return recordIs("NotDecided", "RetryReady", "GroupBound", "GroupFinding")(o) || onMember(o)
	}, isText},
	{"runId", func(o object) bool {
		return recordIs("NotDecided", "RetryReady")(o) || onMember(o) && o["runId"] != nil
	}, isText},
	{"queue", func(o object) bool { return recordIs("NotDecided")(o) || ofGroup(o) }, isText},
	{"jobSet", func(o object) bool { return recordIs("NotDecided")(o) || ofGroup(o) }, isText},
	{"eventTime", recordIs("NotDecided"), isTime},
	{"retryAfter", recordIs("RetryReady", "MemberRestart"), isTime},
	{"group", ofGroup, isText},
	{"part", onUnit, isText},
	{"replica", onUnit, isCount},
	{"index", onMember, isCount},
	{"generation", onUnit, isCount},
	{"state", recordIs("UnitEnded", "GroupEnded"), oneOf("Succeeded", "Failed", "Halted")},
	{"restartsUsed", recordIs("UnitEnded"), isCount},
	{"maxRestarts", recordIs("UnitEnded", "GroupBound"), isCount},
}

// follows checks a line against the contract.
func (o object) follows(fields []field) error {
	for _, f := range fields {
		v, there := o[f.name]
		if want := f.when == nil || f.when(o); there != want {
			return fmt.Errorf("field %q: there %v, want %v", f.name, there, want)
		}
		if there && !f.valid(v) {
			return fmt.Errorf("field %q is %v (%T)", f.name, v, v)
		}
	}
	return nil
}

func jsonLine(t *testing.T, line string) object {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	var o object
	if err := dec.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if !strings.HasSuffix(line, "}\n") {
		t.Fatalf("more than one object in a line: %s", line)
	}
	return o
}

// TestContract checks each line that `replay -o json --all` prints of the
// recordings against the machine-readable contract.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, policies := range []string{testPolicies, filepath.Join("..", "..", "examples", "policies")} {
		for _, name := range recordings {
			t.Run(filepath.Base(filepath.Dir(policies))+"/"+name, func(t *testing.T) {
				t.Parallel()
				log := imported(t, recordingFile(name))
				plain := ctl(t, "replay", "--log", log, "--policies", policies, "-o", "json").exits(t, exitFine)
				all := ctl(t, "replay", "--log", log, "--policies", policies, "-o", "json", "--all").exits(t, exitFine)
				if plain.err != "" || all.err != "" {
					t.Errorf("stderr: %s%s", plain.err, all.err)
				}
				checkLines(t, recordingFile(name), plain.out, all.out)
			})
		}
	}
}

func checkLines(t *testing.T, file, plain, all string) {
	t.Helper()
	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		partition int64
		position  eventlog.Position
	}
	recorded := map[place]recording.Entry{}
	for _, e := range entries {
		recorded[place{int64(e.Partition), e.Message.Position}] = e
	}
	numbers, ends := map[int64]int64{}, map[int64]eventlog.Position{}
	partition, decisions, others := int64(0), strings.Builder{}, 0
	for line := range strings.Lines(all) {
		o := jsonLine(t, line)
		fields := contract
		if _, other := o["record"]; other {
			fields = otherContract
			others++
		} else {
			decisions.WriteString(line)
		}
		if err := o.follows(fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		p, at := o.number("partition"), o.position()
		if last, ok := ends[p]; p < partition || ok && at.Compare(last) < 0 {
			t.Fatalf("not in partition and log order: %s", line)
		}
		partition, ends[p] = p, at
		e, ok := recorded[place{p, at}]
		if !ok {
			t.Fatalf("the recording has no such message: %s", line)
		}
		if o.text("jobId") != "" && !onMember(o) && !bytes.Contains(e.Message.Payload, []byte(o.text("jobId"))) {
			t.Fatalf("that message does not name the job: %s", line)
		}
		if _, other := o["record"]; !other {
			numbers[p]++
			checkDecision(t, o, e, numbers[p], line)
		}
	}
	if decisions.String() != plain {
		t.Errorf("without --all, other decisions: %s", firstDifference(decisions.String(), plain))
	}
	if plain == "" {
		t.Errorf("no decisions in %s", file)
	}
	t.Logf("%d decisions, %d other records", strings.Count(plain, "\n"), others)
}

// checkDecision checks what fields of a decision say of one another.
func checkDecision(t *testing.T, o object, e recording.Entry, number int64, line string) {
	t.Helper()
	failed := parseTime(t, o.text("eventTime"))
	skew := failed.Sub(time.Unix(0, e.Message.Publish)).Abs()
	requeueCodes := []string{"RuleRetry", "RuleIgnore", "DefaultRetry", "LeaseReturned", "GangRetry", "GroupRestart"}
	used, limit := o.number("ruleUsed"), o.number("ruleLimit")
	for what, holds := range map[string]bool{
		"number is dense from 1":              o.number("number") == number,
		"event time is near the publish time": skew <= 5*time.Minute,
		"a requeue has a requeue's code":      requeued(o) == slices.Contains(requeueCodes, o.text("code")),
		"a rule belongs to a policy":          (o.text("policy") == "") == (o.text("rule") == ""),
		"default actions are named so":        !strings.HasPrefix(o.text("code"), "Default") || o.text("rule") == "default" || o.text("policy") == "",
		"nobody retries above a limit":        o.text("code") != "RuleRetry" && o.text("code") != "DefaultRetry" || used >= 1 && used <= limit && o.number("globalUsed") <= o.number("globalLimit"),
		"who is at the limit fails":           o.text("code") != "RuleLimit" && o.text("code") != "PolicyLimit" || used >= limit,
		"queue of the message":                o.text("queue") == queueOf(t, e),
		"replay decides by generation 1":      o.number("generation") == 1 || o.number("policyGeneration") == 1,
	} {
		if !holds {
			t.Fatalf("does not hold: %s: %s", what, line)
		}
	}
	if !requeued(o) {
		return
	}
	delay, err := time.ParseDuration(o.text("delay"))
	if err != nil {
		t.Fatal(err)
	}
	got, own := parseTime(t, o.text("retryAfter")), failed.Add(delay)
	if ofGang := o.text("code") == "GangRetry" || o.text("code") == "GroupRestart"; ofGang && !got.Before(own) {
		own = got // the latest of its members, or the time of the restart
	}
	if !got.Equal(own) {
		t.Fatalf("retryAfter is not eventTime + delay: %s", line)
	}
	if want := fmt.Sprintf("armada-%s-0-%d", o.text("jobId"), o.number("runIndex")+1); o.text("podName") != want {
		t.Fatalf("podName is not %s: %s", want, line)
	}
}

func queueOf(t *testing.T, e recording.Entry) string {
	t.Helper()
	var seq pb.EventSequence
	if err := proto.Unmarshal(e.Message.Payload, &seq); err != nil {
		t.Fatal(err)
	}
	return seq.Queue
}

// TestReplayAgainstModel holds what `replay -o json --all` prints against the
// naive model, number for number, under random policies; groups are held against it in TestGroups.
func TestReplayAgainstModel(t *testing.T) {
	t.Parallel()
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, messages := imported(t, recordingFile(name)), messagesOf(t, recordingFile(name))
			seeds := uint64(4)
			if testing.Short() {
				seeds = 1
			}
			for seed := range seeds {
				dir, policies := t.TempDir(), makePolicies(seed*100)
				writePolicies(t, dir, policies)
				r := ctl(t, "replay", "--log", log, "--policies", dir, "-o", "json", "--all", "--semantics", "2").exits(t, exitFine)
				var got [partitions][]model.Record
				for line := range strings.Lines(r.out) {
					p, rec := recordOf(t, jsonLine(t, line))
					got[p] = append(got[p], rec)
				}
				for p := range got {
					var want []model.Record
					m := model.New(policies)
					for _, msg := range messages[p] {
						records := m.Step(msg)
						modelrecord.Normalize(records)
						want = append(want, records...)
					}
					compareRecords(t, p, want, got[p])
				}
				if t.Failed() {
					t.Fatalf("policies of seed %d", seed*100)
				}
			}
		})
	}
}

// recordOf reads a line back into the model's record.
func recordOf(t *testing.T, o object) (int, model.Record) {
	t.Helper()
	at := o.position()
	r := model.Record{
		Kind: model.Kind(o.text("decision") + o.text("record")), Ledger: at.Ledger, Entry: at.Entry, Batch: at.Batch,
		Queue: o.text("queue"), JobSet: o.text("jobSet"), JobID: o.text("jobId"), RunID: o.text("runId"),
		Number: o.number("number"), RunIndex: int(o.number("runIndex")), Code: o.text("code"), Policy: o.text("policy"), Rule: o.text("rule"),
		PodName: o.text("podName"), AvoidNodes: texts(o["avoidNodes"]), NodesLeftOut: int(o.number("nodesLeftOut")), SkippedPolicies: texts(o["skippedPolicies"]),
		RuleUsed: int(o.number("ruleUsed")), RuleLimit: int(o.number("ruleLimit")), LimitFrom: o.text("limitFrom"),
		GlobalUsed: int(o.number("globalUsed")), GlobalLimit: int(o.number("globalLimit")),
	}
	r.Shadow, _ = o["shadow"].(bool)
	if s := o.text("eventTime"); s != "" {
		r.T = parseTime(t, s).UnixNano()
	}
	if s := o.text("retryAfter"); s != "" {
		r.RetryAfter = parseTime(t, s).UnixNano()
	}
	if s := o.text("delay"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		r.DelayMs = d.Milliseconds()
	}
	if r.Kind == model.NotDecided {
		r.Reason = o.text("reason")
	}
	return int(o.number("partition")), r
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		s, _ := x.(string)
		out = append(out, s)
	}
	return out
}

// TestReplayInParallel: replay prints the same bytes however many partitions it decides at once.
func TestReplayInParallel(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	for _, name := range recordings {
		ctl(t, "import", recordingFile(name), "--log", dir, "--partitions", "5").exits(t, exitFine)
	}
	for _, form := range []string{"json", "table"} {
		replay := []string{"replay", "--log", dir, "--policies", testPolicies, "-o", form, "--all", "--parallel"}
		want := ctl(t, append(replay, "1")...).exits(t, exitFine)
		if n := strings.Count(want.out, "\n"); n < 100 {
			t.Errorf("-o %s: %d lines", form, n)
		}
		for _, n := range []string{"2", "9"} {
			if got := ctl(t, append(replay, n)...).exits(t, exitFine); got.out != want.out {
				t.Errorf("-o %s --parallel %s: %s", form, n, firstDifference(want.out, got.out))
			}
		}
	}
}
