package events

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
)

var recordings = []string{"plain", "chaos", "retried", "preempted"}

// recording is the payloads of a recorded history, in file order.
func recording(tb testing.TB, name string) [][]byte {
	tb.Helper()
	f, err := os.Open("../testdata/recordings/" + name + ".jsonl.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		tb.Fatal(err)
	}
	var payloads [][]byte
	for lines := json.NewDecoder(z); ; {
		var line struct{ Payload []byte }
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return payloads
		} else if err != nil {
			tb.Fatal(err)
		}
		payloads = append(payloads, line.Payload)
	}
}

// disagree says how the two decoders differ on a payload; empty when they do not.
func disagree(d *Decoder, payload []byte) string {
	want, full, wantErr := reference(payload)
	got, gotErr := d.Decode(payload)
	if g, w := class(gotErr), class(wantErr); g != w {
		return fmt.Sprintf("Decode says %s (%v), protobuf-go %s (%v)", g, gotErr, w, wantErr)
	}
	if !reflect.DeepEqual(got, want) { // not cmp.Equal: nil and empty are told apart too
		return fmt.Sprintf("Decode(-) and Reference(+) differ:\n%s", cmp.Diff(got, want))
	}
	m, err := Read(payload)
	if class(err) != class(wantErr) {
		return fmt.Sprintf("Read says %v, protobuf-go %v", err, wantErr)
	}
	if err != nil {
		return ""
	}
	if !reflect.DeepEqual(&m.Sequence, want) {
		return fmt.Sprintf("Read(-) and Reference(+) differ:\n%s", cmp.Diff(&m.Sequence, want))
	}
	if m.UserID != full.UserId || !slices.Equal(m.Groups, full.Groups) {
		return fmt.Sprintf("user %q of %q, want %q of %q", m.UserID, m.Groups, full.UserId, full.Groups)
	}
	for i, want := range full.Events {
		if !proto.Equal(m.Full(i), want) {
			return fmt.Sprintf("event %d is %v, want %v", i, m.Full(i), want)
		}
	}
	return ""
}

// class is what a caller sees of an error.
func class(err error) string {
	if err == nil {
		return "readable"
	}
	if u, ok := errors.AsType[*Unreadable](err); ok {
		return u.Reason.String()
	}
	return fmt.Sprintf("%T", err)
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d Decoder
			payloads, events := recording(t, name), 0
			for i, payload := range payloads {
				before := bytes.Clone(payload)
				if diff := disagree(&d, payload); diff != "" {
					t.Fatalf("message %d: %s\npayload: %q", i, diff, payload)
				}
				if !bytes.Equal(before, payload) {
					t.Fatalf("message %d: the payload was written to", i)
				}
				events += len(d.seq.Events)
			}
			if len(payloads) < 200 || events < 600 {
				t.Errorf("%d messages with %d events: too few", len(payloads), events)
			}
		})
	}
}

// TestNoAllocations decodes what Armada sends and, once warm, allocates nothing.
func TestNoAllocations(t *testing.T) {
	byKind := map[Kind][][]byte{}
	for _, name := range recordings {
		for _, payload := range recording(t, name) {
			s, _, err := reference(payload)
			if err != nil {
				continue // partition markers
			}
			for _, ev := range s.Events {
				byKind[ev.Kind] = append(byKind[ev.Kind], payload)
			}
		}
	}
	if len(byKind) < 11 {
		t.Errorf("the recordings hold %d kinds of event, want at least 11", len(byKind))
	}
	for kind, payloads := range byKind {
		var d Decoder
		all := func() {
			for _, payload := range payloads {
				if _, err := d.Decode(payload); err != nil {
					t.Fatal(err)
				}
			}
		}
		all()
		if n := testing.AllocsPerRun(3, all); n != 0 {
			t.Errorf("%v allocations to decode %d messages with events of kind %d, want 0", n, len(payloads), kind)
		}
	}
}

// TestOneDecoder says that what a Decoder read before does not show, and that
// it lets go of old payloads and of the memory of a huge one.
func TestOneDecoder(t *testing.T) {
	t.Parallel()
	small := sequence("q", "s", msg(14, vint(3, 0)), msg(1, str(14, "j")))
	huge := bytes.Clone(small)
	for range keep + 1 {
		huge = append(huge, msg(5, msg(1, str(14, "j")), msg(18))...)
	}
	several := msg(3, vint(1, 1), msg(8, msg(5, str(3, "m")), msg(5), msg(5)))
	huge = append(huge, msg(5, msg(14, bytes.Repeat(several, keep)))...)

	d := new(Decoder)
	old := func() weak.Pointer[byte] { // its own frame: nothing here keeps the payload
		payload := sequence("queue", "set", msg(1, str(14, "job"), annotated("armadaproject.io/gangId", "g"), podSpec(msg(20, str(1, "i")))),
			msg(14, str(4, "job"), bytes.Repeat(several, 5)), msg(14, msg(3, msg(8, msg(5, str(3, "given up"))), msg(3, msg(1, str(3, "too"))))))
		if _, err := d.Decode(payload); err != nil {
			t.Fatal(err)
		}
		return weak.Make(&payload[0])
	}()
	if diff := disagree(d, small); diff != "" {
		t.Errorf("after another message: %s", diff)
	}
	runtime.GC()
	if old.Value() != nil {
		t.Error("the Decoder keeps an old payload")
	}
	for range 2 {
		if diff := disagree(d, huge); diff != "" {
			t.Fatalf("huge: %s", diff[:min(len(diff), 1000)])
		}
		if diff := disagree(d, small); diff != "" {
			t.Errorf("after a huge message: %s", diff)
		}
		if n := max(cap(d.seq.Events), cap(d.submits), cap(d.errors), cap(d.names), cap(d.containers)); n > keep {
			t.Errorf("the Decoder keeps room for %d elements after a huge message, want at most %d", n, keep)
		}
	}
}

// TestOwnElements says that nobody can reach another event's elements by appending to an event's.
func TestOwnElements(t *testing.T) {
	t.Parallel()
	submit := msg(1, podSpec(msg(20, str(1, "i"))))
	failure := failed(terminalError(msg(8, msg(5))))
	payload := sequence("q", "s", submit, submit, failure, failure)
	var d Decoder
	_, _ = d.Decode(payload) // once, to have grown
	s, err := d.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range s.Events {
		if ev.Submit != nil && cap(ev.Submit.InitContainers) != 1 {
			t.Error("room behind the init containers")
		}
		if ev.Error != nil && cap(ev.Error.Containers) != 1 {
			t.Error("room behind the containers")
		}
		if cap(ev.Raw) != len(ev.Raw) {
			t.Error("room behind the bytes")
		}
	}
}

// TestRules holds what both decoders make of the corners of the wire format.
func TestRules(t *testing.T) {
	t.Parallel()
	var d Decoder
	for _, tt := range rules {
		if diff := disagree(&d, tt.payload); diff != "" {
			t.Errorf("%s: %s\npayload: %q", tt.name, diff, tt.payload)
		}
		s, err := d.Decode(tt.payload)
		if got := summary(s, err); got != tt.want {
			t.Errorf("%s: %s\nwant: %s", tt.name, got, tt.want)
		}
	}
}

// summary is a sequence on one line, without what is zero: events are
// separated by " | ", and their first word is the kind's number.
func summary(s *Sequence, err error) string {
	if err != nil {
		return class(err)
	}
	var b strings.Builder
	add := func(name string, v any) {
		if r := reflect.ValueOf(v); !r.IsZero() {
			fmt.Fprintf(&b, " %s=%v", name, v)
		}
	}
	for i, ev := range s.Events {
		if i > 0 {
			b.WriteString(" | ")
		}
		fmt.Fprintf(&b, "%d", ev.Kind)
		add("job", ev.JobID)
		add("run", ev.RunID)
		add("node", ev.Node)
		add("states", ev.States)
		if ev.Created.Present {
			fmt.Fprintf(&b, " created=%d.%d", ev.Created.Seconds, ev.Created.Nanos)
		}
		if s := ev.Submit; s != nil {
			fmt.Fprintf(&b, " submit")
			add("policies", s.RetryPolicies)
			add("failfast", s.FailFast)
			add("gang", s.GangID)
			add("cardinality", s.GangCardinality)
			add("group", s.Group)
			add("group-policy", s.GroupPolicy)
			add("part", s.Part)
			add("replica", s.Replica)
			add("index", s.Index)
			add("init", s.InitContainers)
			add("grace", s.GraceSeconds)
		}
		if o := ev.Order; o != nil {
			fmt.Fprintf(&b, " order=%s", o.ID)
			add("action", o.Action)
			add("author", o.Author)
			add("reason", o.Reason)
			add("notBefore", o.NotBefore)
		}
		if e := ev.Error; e != nil {
			fmt.Fprintf(&b, " reason=%d", e.Reason)
			add("category", e.Category)
			add("subcategory", e.Subcategory)
			add("attempted", e.RunAttempted)
			add("kubernetes", e.KubernetesReason)
			add("pod", e.Node)
			add("containers", e.Containers)
		}
	}
	return b.String()
}
