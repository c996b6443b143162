package chain_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestAccept runs the scenarios in testdata/accept: a reader at the beginning
// of a chain, and what it is offered.
func TestAccept(t *testing.T) {
	datadriven.Walk(t, "testdata/accept", func(t *testing.T, path string) {
		s := &acceptScenario{end: chain.Beginning}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			switch d.Cmd {
			case "offer":
				// offer [seq=N] [link=N|wrong] [epoch=N] [owner=X] [from=N] [to=N] [count=N]: an
				// envelope that fits where the reader stands, but for what is named.
				// from and to are entries of ledger 1, or "start"; link=N is that of the N-th
				// accepted envelope. Its lines are records: decision, not-decided, parked,
				// ready, policy, semantics, or
				// claim [epoch=N] [owner=X] [last=N] [link=N|wrong], which fits likewise.
				// An envelope whose first line is a claim is of the next epoch.
				return s.offer(s.envelope())
			case "again":
				// again N: the bytes of the N-th offer of this file once more.
				return s.offer(s.offered[s.numberAt(0)-1])
			case "raw":
				// raw HEX: a stranger's bytes.
				b, err := hex.DecodeString(strings.TrimSpace(d.Input))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return s.offer(b)
			case "reader":
				// reader at=N: goes on as a reader that stands behind the N-th accepted
				// envelope and has lost what follows it; 0 is the beginning.
				s.end = s.endAt(s.number("at", 0))
				return s.show()
			case "end":
				// end: where the reader stands.
				return s.show()
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
	})
}

type acceptScenario struct {
	t        *testing.T
	d        *datadriven.TestData
	end      chain.End
	accepted []chain.End // accepted[i] after the (i+1)-th accepted envelope of the file
	offered  [][]byte
}

func (s *acceptScenario) show() string {
	return fmt.Sprintf("seq %d, epoch %d, owner %s, in to %s\n", s.end.Seq, s.end.Epoch, ownerName(s.end.Owner), s.end.InTo)
}

func (s *acceptScenario) offer(raw []byte) string {
	s.offered = append(s.offered, raw)
	acc, why, err := s.end.Offer(raw)
	switch {
	case err != nil:
		if acc != nil || why != chain.NotIgnored {
			s.d.Fatalf(s.t, "an error, and also %v, %v", acc, why)
		}
		return fmt.Sprintf("error: %v\n", err)
	case acc == nil:
		if why == chain.NotIgnored {
			s.d.Fatalf(s.t, "neither accepted nor ignored")
		}
		return fmt.Sprintf("ignored: %v\n", why)
	case why != chain.NotIgnored:
		s.d.Fatalf(s.t, "accepted and ignored as %v", why)
	}
	if acc.End.Link != chain.Link(raw) {
		s.d.Fatalf(s.t, "link %v is not that of the bytes", acc.End.Link)
	}
	s.end = acc.End
	s.accepted = append(s.accepted, acc.End)
	kind := "accepted"
	if acc.Claim != nil {
		kind = "accepted claim"
	}
	return fmt.Sprintf("%s of %d records: %s", kind, len(acc.Records), s.show())
}

// envelope builds what an offer says.
func (s *acceptScenario) envelope() []byte {
	e := &chain.Envelope{Seq: s.number("seq", s.end.Seq+1), Epoch: s.end.Epoch, Owner: s.end.Owner, InFrom: s.end.InTo}
	claims := strings.HasPrefix(s.d.Input, "claim")
	if claims {
		e.Epoch++
	}
	e.Epoch = s.number("epoch", e.Epoch)
	if s.d.HasArg("owner") {
		e.Owner = owner(s.text("owner"))
	}
	e.Link = s.link(s.textOr("link", ""))
	if s.d.HasArg("from") {
		e.InFrom = s.position("from")
	}
	e.InTo = e.InFrom
	if s.d.HasArg("to") {
		e.InTo, e.InCount = s.position("to"), 1
	}
	e.InCount = s.number("count", e.InCount)
	for line := range strings.Lines(s.d.Input) {
		e.Records = append(e.Records, chain.AppendRecord(nil, s.record(e, strings.Fields(line))))
	}
	return e.Append(nil)
}

func (s *acceptScenario) record(e *chain.Envelope, words []string) chain.Record {
	switch words[0] {
	case "decision":
		return &chain.Decision{JobID: "j", RunID: "r", Position: e.InTo}
	case "not-decided":
		return &chain.NotDecided{JobID: "j", RunID: "r", Position: e.InTo, Reason: chain.Ended}
	case "parked":
		return &chain.Parked{Position: e.InTo, Raw: []byte("x")}
	case "ready":
		return &chain.RetryReady{JobID: "j", RunID: "r", Position: e.InTo}
	case "policy":
		return &chain.PolicyActivated{Generation: 1}
	case "semantics":
		return &chain.SemanticsActivated{Version: 1}
	case "history":
		return &chain.HistoryAccepted{By: "me"}
	case "claim":
		return s.claim(e, words[1:])
	}
	s.d.Fatalf(s.t, "no record is called %q", words[0])
	return nil
}

func (s *acceptScenario) claim(e *chain.Envelope, words []string) *chain.OwnerClaim {
	c := &chain.OwnerClaim{Epoch: e.Epoch, Owner: e.Owner, LastSeq: s.end.Seq, LastLink: s.end.Link}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "epoch":
			c.Epoch = s.parse(value)
		case "owner":
			c.Owner = owner(value)
		case "last":
			c.LastSeq = s.parse(value)
		case "link":
			c.LastLink = s.link(value)
		default:
			s.d.Fatalf(s.t, "a claim has no %q", key)
		}
	}
	return c
}

func (s *acceptScenario) endAt(n uint64) chain.End {
	if n == 0 {
		return chain.Beginning
	}
	return s.accepted[n-1]
}

func (s *acceptScenario) link(of string) chain.Hash {
	switch of {
	case "":
		return s.end.Link
	case "wrong":
		return chain.Link([]byte("wrong"))
	}
	return s.endAt(s.parse(of)).Link
}

func (s *acceptScenario) position(key string) eventlog.Position {
	text := s.text(key)
	if text == "start" {
		return eventlog.Start
	}
	return eventlog.Position{Ledger: 1, Entry: int64(s.parse(text))}
}

func (s *acceptScenario) number(key string, unset uint64) uint64 {
	if !s.d.HasArg(key) {
		return unset
	}
	return s.parse(s.text(key))
}

func (s *acceptScenario) numberAt(i int) uint64 { return s.parse(s.d.CmdArgs[i].Key) }

func (s *acceptScenario) text(key string) string { return s.textOr(key, "") }

func (s *acceptScenario) textOr(key, unset string) string {
	s.d.MaybeScanArgs(s.t, key, &unset)
	return unset
}

func (s *acceptScenario) parse(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return n
}

// owner is the id of an owner with a name of up to 16 letters.
func owner(name string) (id chain.OwnerID) {
	copy(id[:], name)
	return id
}

func ownerName(id chain.OwnerID) string {
	if id == (chain.OwnerID{}) {
		return "none"
	}
	return strings.TrimRight(string(id[:]), "\x00")
}

// TestStrangersChangeNothing: whatever of the log is written again later, and
// whatever else is written, the same envelopes are accepted.
func TestStrangersChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := randomChain(t)
		want := accepted(t, log)
		if len(want) == 0 {
			t.Fatal("nothing is accepted")
		}
		var noisy [][]byte
		for _, raw := range log {
			noisy = append(noisy, raw)
			for rapid.IntRange(0, 2).Draw(t, "more") == 0 {
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0: // a client that repeats itself; only what was accepted: what was not may fit by now
					if sofar := accepted(t, noisy); len(sofar) > 0 {
						noisy = append(noisy, sofar[rapid.IntRange(0, len(sofar)-1).Draw(t, "again")])
					}
				case 1:
					noisy = append(noisy, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "stranger"))
				case 2:
					b := append([]byte(nil), raw...)
					b[rapid.IntRange(0, 1).Draw(t, "place")] ^= 0x40 // the tag of seq, or seq itself
					noisy = append(noisy, b)
				}
			}
		}
		got := accepted(t, noisy)
		if len(got) != len(want) {
			t.Fatalf("%d are accepted, %d without the noise", len(got), len(want))
		}
		for i := range want {
			if string(got[i]) != string(want[i]) {
				t.Fatalf("accepted envelope %d is another one", i)
			}
		}
	})
}

// randomChain is what some owners wrote: each reads the log to its end, claims
// there, and if its claim was accepted writes on without looking at the others.
func randomChain(t *rapid.T) (log [][]byte) {
	type writer struct {
		end    chain.End
		claim  []byte
		toSend [][]byte
	}
	var writers []*writer
	const claimAndMore = 6
	begin := func() {
		w := &writer{end: chain.Beginning}
		for _, raw := range log {
			if acc, _, err := w.end.Offer(raw); err == nil && acc != nil {
				w.end = acc.End
			}
		}
		id := owner(fmt.Sprintf("o%d", len(writers)))
		e := chain.Envelope{Seq: w.end.Seq + 1, Link: w.end.Link, Epoch: w.end.Epoch + 1, Owner: id, InFrom: w.end.InTo, InTo: w.end.InTo}
		e.Records = [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{Epoch: e.Epoch, Owner: id, LastSeq: w.end.Seq, LastLink: w.end.Link})}
		for {
			raw := e.Append(nil)
			w.toSend = append(w.toSend, raw)
			if len(w.toSend) == claimAndMore {
				break
			}
			from := e.InTo
			e = chain.Envelope{
				Seq: e.Seq + 1, Link: chain.Link(raw), Epoch: e.Epoch, Owner: id,
				InFrom: from, InTo: eventlog.Position{Ledger: 1, Entry: max(0, from.Entry) + 1}, InCount: 1,
			}
		}
		w.claim = w.toSend[0]
		writers = append(writers, w)
	}
	won := func(w *writer) bool {
		return slices.ContainsFunc(accepted(t, log), func(raw []byte) bool { return bytes.Equal(raw, w.claim) })
	}
	begin()
	for range rapid.IntRange(1, 15).Draw(t, "steps") {
		if len(writers) < 4 && rapid.IntRange(0, 3).Draw(t, "begin") == 0 {
			begin()
		}
		w := writers[rapid.IntRange(0, len(writers)-1).Draw(t, "writer")]
		if len(w.toSend) == claimAndMore || len(w.toSend) > 0 && won(w) {
			log, w.toSend = append(log, w.toSend[0]), w.toSend[1:]
		}
	}
	if len(log) == 0 || len(accepted(t, log)) == 0 {
		log = append(log, writers[0].toSend[0])
	}
	return log
}

// accepted are the envelopes that a reader of the whole log accepts. Nothing
// is missing from these logs, so no reader may say so.
func accepted(t *rapid.T, log [][]byte) (out [][]byte) {
	end := chain.Beginning
	var past chain.Past
	for _, raw := range log {
		acc, _, err := end.Offer(raw)
		if err != nil {
			t.Fatalf("Offer: %v", err)
		}
		if err := past.Contradicts(raw); err != nil {
			t.Fatalf("Contradicts: %v", err)
		}
		if acc != nil {
			end, out = acc.End, append(out, raw)
			past.Add(end)
		}
	}
	return out
}

// TestPast: a claim that follows on what another way holds says so to whoever
// knows ours.
func TestPast(t *testing.T) {
	t.Parallel()
	write := func(e chain.End, name string, records ...chain.Record) (chain.End, []byte) {
		env := chain.Envelope{Seq: e.Seq + 1, Link: e.Link, Epoch: e.Epoch, Owner: owner(name), InFrom: e.InTo, InTo: e.InTo}
		for _, r := range records {
			if c, ok := r.(*chain.OwnerClaim); ok {
				env.Epoch = c.Epoch
			}
			env.Records = append(env.Records, chain.AppendRecord(nil, r))
		}
		raw := env.Append(nil)
		acc, why, err := e.Offer(raw)
		if err != nil || acc == nil {
			t.Fatalf("%v, %v", why, err)
		}
		return acc.End, raw
	}
	claim := func(e chain.End, name string) (chain.End, []byte) {
		return write(e, name, &chain.OwnerClaim{Epoch: e.Epoch + 1, Owner: owner(name), LastSeq: e.Seq, LastLink: e.Link})
	}
	begun, _ := claim(chain.Beginning, "a")
	ours, theirs := begun, begun
	var past chain.Past
	past.Add(ours)
	ours, _ = write(ours, "a", &chain.PolicyActivated{Generation: 1})
	past.Add(ours)
	_, late := claim(theirs, "b")
	ours, _ = claim(ours, "c")
	past.Add(ours)
	theirs, _ = write(theirs, "a", &chain.PolicyActivated{Generation: 2})
	_, other := claim(theirs, "d")
	if _, why, err := ours.Offer(late); why != chain.LostClaim || err != nil || past.Contradicts(late) != nil {
		t.Errorf("a late claim is %v, %v, %v", why, err, past.Contradicts(late))
	}
	if _, why, err := ours.Offer(other); why != chain.LostClaim || err != nil || !errors.Is(past.Contradicts(other), chain.ErrMissing) {
		t.Errorf("a claim of another way is %v, %v, %v", why, err, past.Contradicts(other))
	}
	if err := past.Contradicts([]byte("stranger")); err != nil {
		t.Error(err)
	}
}
