package sink_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// fed is a batch of messages that were fed from recordings, each with the
// position that it had there, and records that answer them.
type fed struct {
	batch follow.Batch
}

func (f *fed) add(recording string, entry int64, lines ...string) {
	origin := eventlog.Origin{Recording: recording, Position: eventlog.Position{Ledger: 7, Entry: entry}, Publish: second}
	m, records := build("q", "s", lines, origin.Position, second)
	m.Origin, m.Position = origin, position(len(f.batch.Messages)+1)
	f.batch.Messages = append(f.batch.Messages, m)
	f.batch.Records = append(f.batch.Records, records...)
}

// TestRecordingsThatShareAPosition: two recordings in one partition may have
// messages at the same position; each record goes to the one that caused it.
func TestRecordingsThatShareAPosition(t *testing.T) {
	t.Parallel()
	f := fed{batch: follow.Batch{Accepted: &chain.Accepted{Envelope: &chain.Envelope{Seq: 9}}}}
	f.add("one", 5, "leased a r")
	f.add("two", 5, "run-errors b r pod", "> requeue b r after=9")
	f.add("one", 6, "run-errors a r pod passing", "leased a r2")
	f.add("two", 6, "leased - r", "> parked", "terminated b r", "> ready b r after=5")
	parked := f.batch.Records[1].(*chain.Parked)
	parked.Raw = f.batch.Messages[3].Payload[8:20]
	f.add("one", 7, "preempted a r2", "> requeue a r2 after=9")
	f.add("two", 7, "terminated a r2", "> ready a r2 after=5") // which of both caused it, its position does not say
	f.add("one", 6, "run-errors a r3 pod", "> not-decided a r3")
	_, messages, err := sink.Split(&f.batch, 0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, m := range messages {
		got += fmt.Sprint(m.FirstRecord, "+", len(m.Records), " ")
	}
	if want := "0+0 0+1 0+0 1+2 3+2 0+0 5+1 "; got != want {
		t.Errorf("first record and number of records of each message: %s, want %s", got, want)
	}

	f.batch.Records[0], f.batch.Records[5] = f.batch.Records[5], f.batch.Records[0]
	if _, _, err := sink.Split(&f.batch, 0, eventlog.Start); !errors.Is(err, sink.ErrUnmatched) {
		t.Errorf("records in another order than their messages: error %v, want ErrUnmatched", err)
	}
}
