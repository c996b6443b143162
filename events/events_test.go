package events

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestTimestampTime(t *testing.T) {
	t.Parallel()
	const (
		second = int64(time.Second)
		skew   = int64(5 * time.Minute)
		now    = int64(1_795_217_891_390_414_542)
	)
	at := func(ns int64) Timestamp {
		return Timestamp{Present: true, Seconds: ns / second, Nanos: int32(ns % second)}
	}
	seconds := func(s int64, n int32) Timestamp { return Timestamp{Present: true, Seconds: s, Nanos: n} }
	tests := []struct {
		name          string
		created       Timestamp
		publish, want int64
	}{
		{"absent", Timestamp{}, now, now},
		{"absent, whatever it holds", Timestamp{Seconds: 7, Nanos: 7}, now, now},
		{"same", at(now), now, now},
		{"a little earlier", at(now - 1), now, now - 1},
		{"a little later", at(now + 1), now, now + 1},
		{"as early as allowed", at(now - skew), now, now - skew},
		{"too early by one", at(now - skew - 1), now, now - skew},
		{"as late as allowed", at(now + skew), now, now + skew},
		{"too late by one", at(now + skew + 1), now, now + skew},
		{"present and zero is 1970", seconds(0, 0), now, now - skew},
		{"present and zero, published in 1970", seconds(0, 0), 3 * second, 0},
		{"zero publish time", at(second), 0, second},
		{"before 1970", seconds(-1, 0), 0, -second},
		{"negative nanos", seconds(1, -1), 0, second - 1},
		{"more nanos than a second", seconds(0, math.MaxInt32), 0, math.MaxInt32},
		{"least nanos", seconds(0, math.MinInt32), 0, math.MinInt32},
		{"greatest seconds", seconds(math.MaxInt64, 0), now, now + skew},
		{"least seconds", seconds(math.MinInt64, 0), now, now - skew},
		{"seconds that overflow once multiplied", seconds(math.MaxInt64/second+1, 0), now, now + skew},
		{"seconds that overflow downwards", seconds(math.MinInt64/second-1, 0), now, now - skew},
		{"seconds that wrap around to now", seconds(math.MaxInt64/second*2, 0), now, now + skew},
		{"last second but nanos overflow", seconds(math.MaxInt64/second, math.MaxInt32), now, now + skew},
		{"first second but nanos overflow", seconds(math.MinInt64/second, math.MinInt32), now, now - skew},
		{"greatest publish time saturates", seconds(math.MaxInt64, 0), math.MaxInt64, math.MaxInt64},
		{"greatest publish time, low bound", seconds(0, 0), math.MaxInt64, math.MaxInt64 - skew},
		{"least publish time saturates", seconds(math.MinInt64, 0), math.MinInt64, math.MinInt64},
		{"least publish time, high bound", seconds(0, 0), math.MinInt64, math.MinInt64 + skew},
		{"absent, greatest publish time", Timestamp{}, math.MaxInt64, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.created.Time(tt.publish); got != tt.want {
				t.Errorf("%+v.Time(%d) = %d, want %d", tt.created, tt.publish, got, tt.want)
			}
		})
	}
}

// TestTimestampTimeHeld says of every mixture of extremes that t is within the skew.
func TestTimestampTimeHeld(t *testing.T) {
	t.Parallel()
	const second, skew = int64(time.Second), int64(5 * time.Minute)
	edges := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 / second, -skew, -1, 0, 1, skew, math.MaxInt64 / second, math.MaxInt64 - 1, math.MaxInt64}
	for _, publish := range edges {
		for _, seconds := range edges {
			for d := int64(-4); d <= 4; d++ {
				for _, nanos := range []int32{math.MinInt32, -1, 0, 1, 999_999_999, math.MaxInt32} {
					created := Timestamp{Present: true, Seconds: seconds + d, Nanos: nanos}
					got := created.Time(publish)
					if got < publish && publish-got > skew || got > publish && got-publish > skew {
						t.Fatalf("%+v.Time(%d) = %d, more than five minutes away", created, publish, got)
					}
				}
			}
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	// Which ids each kind must have: none, a job, or a job and a run.
	ids := map[Kind]int{
		Other: 0, CancelJobSet: 0,
		SubmitJob: 1, CancelJob: 1, CancelledJob: 1, JobSucceeded: 1, JobErrors: 1,
		RunLeased: 2, RunAssigned: 2, RunRunning: 2, RunSucceeded: 2, RunErrors: 2, RunPreempted: 2, RunTerminated: 2, KnownRun: 2, EndedRun: 2, JobOrder: 2,
	}
	if len(ids) != int(JobOrder)+1 {
		t.Fatalf("%d kinds in this test, want %d", len(ids), JobOrder+1)
	}
	for kind, n := range ids {
		none, job, run, both := UnknownParkReason, UnknownParkReason, UnknownParkReason, UnknownParkReason
		if n >= 1 {
			none, run = NoJob, NoJob
		}
		if n == 2 {
			job = NoRun
		}
		for _, tt := range []struct {
			ev   Event
			want ParkReason
		}{
			{Event{Kind: kind}, none},
			{Event{Kind: kind, JobID: "j"}, job},
			{Event{Kind: kind, RunID: "r"}, run},
			{Event{Kind: kind, JobID: "j", RunID: "r"}, both},
		} {
			if got := tt.ev.Missing(); got != tt.want {
				t.Errorf("kind %d, job %q, run %q: Missing() = %v, want %v", kind, tt.ev.JobID, tt.ev.RunID, got, tt.want)
			}
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for reason, want := range map[ParkReason]string{
		NotProtobuf: "cause", NoQueue: "queue", NoJobSet: "job set", NoEvents: "without events",
	} {
		e := &Unreadable{Reason: reason, Err: cause}
		if got := e.Error(); !strings.Contains(got, want) {
			t.Errorf("%v: Error() = %q, want %q in it", reason, got, want)
		}
		if !errors.Is(e, cause) {
			t.Errorf("%v does not wrap its cause", reason)
		}
	}
}

// TestParkReasonNumbers holds the numbers that stand in decision logs.
func TestParkReasonNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range []string{"Unknown", "NotProtobuf", "NoQueue", "NoJobSet", "NoEvents", "NoJob", "NoRun", "TooLarge", "ParkReason(8)"} {
		if got := ParkReason(n).String(); got != want {
			t.Errorf("ParkReason %d is %q, want %q", n, got, want)
		}
	}
}
