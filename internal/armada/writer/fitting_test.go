package writer

import (
	"bytes"
	"compress/zlib"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// TestFitting: a copy that is too large for a broker is shortened, or not published.
func TestFitting(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxCopy)
	for _, tt := range []struct {
		name, message string
		info          []byte
		want          string // message in the copy
		none          bool
	}{
		{name: "short", message: "it failed", want: "it failed"},
		{name: "long error", message: long, want: "The error is too long to be published again with the retry."},
		{name: "long requirements", message: "it failed", info: []byte(long), none: true},
	} {
		failed, err := proto.Marshal(&pb.Error{Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: tt.message}}})
		if err != nil {
			t.Fatal(err)
		}
		var stored bytes.Buffer
		z := zlib.NewWriter(&stored)
		if _, err := z.Write(failed); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		c := copyOf{jobID: "job", runID: "run", queue: "q", set: "s", policy: "p", requeue: true, version: 2, info: tt.info, error: stored.Bytes()}
		payload, err := c.fitting()
		if err != nil || (payload == nil) != tt.none || len(payload) > maxCopy {
			t.Errorf("%s: %d bytes, %v", tt.name, len(payload), err)
		}
		if payload == nil {
			continue
		}
		var seq pb.EventSequence
		if err := proto.Unmarshal(payload, &seq); err != nil {
			t.Fatal(err)
		}
		if got := seq.GetEvents()[0].GetJobErrors().GetErrors()[0]; got.GetPodError().GetMessage() != tt.want || got.GetTerminal() {
			t.Errorf("%s: the copy says %.100v", tt.name, got)
		}
	}
}
