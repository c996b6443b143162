package query_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/query"
)

// hour is when the generations of a test came, in hours from 1970.
func hour(n int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(n*3600, 0)) }

// threeGenerations has a third one that cannot be used; newest first.
func threeGenerations() []*pb.Generation {
	return []*pb.Generation{
		{Generation: 4, Time: hour(1190), Author: "eve"},
		{Generation: 3, Time: hour(1100), Unusable: "it is too new"},
		{Generation: 2, Time: hour(1090), Author: "bob"},
		{Generation: 1, Time: hour(1000), Author: "ann"},
	}
}

func TestGenerationAt(t *testing.T) {
	t.Parallel()
	now := hour(1200).AsTime()
	for text, want := range map[string]uint64{
		"": 4, "0": 0, "1": 1, "3": 3, "4": 4, "0s": 4, "10h": 4, "11h": 2, "24h": 2, "5d": 1, "200h": 1,
		"1970-02-19": 2, "1970-02-19T14:00:00Z": 4, "1970-02-19T13:59:59Z": 2, "generation:2": 2, "generation:24h": 2, "generation:0": 0,
	} {
		if got, err := query.GenerationAt(text, threeGenerations(), now); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"5": "there is no generation 5", "201h": "201h: the policies log begins later, with generation 1 at 1970-02-11T16:00:00Z; 0 is what was before the first",
		"generation:5": "generation:5: there is no generation 5", "generation:": "generation:: which one?", "2100-01-01": `"2100-01-01" lies in the future`,
		"yesterday": "or a generation such as 7", "-1": "want a duration",
	} {
		_, err := query.GenerationAt(text, threeGenerations(), now)
		if bad := (*query.Invalid)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := query.GenerationAt("", nil, now); err == nil || !strings.Contains(err.Error(), "no policies were published") {
		t.Error(err)
	}
}

// written are the policies of generations.
type written map[uint64][]string

func (w written) List(_ context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	out := &pb.ListResponse{Generation: r.Generation}
	for _, text := range w[r.Generation] {
		doc := &structpb.Struct{}
		if err := doc.UnmarshalJSON([]byte(text)); err != nil {
			return nil, err
		}
		out.Resources = append(out.Resources, &pb.Resource{Document: doc})
	}
	return out, nil
}

const (
	policyBefore = `{"apiVersion":"armadaproject.io/v1","kind":"RetryPolicy","metadata":{"name":"p"},"spec":{"defaultAction":"Fail","rules":[{"name":"a","action":"Retry","retryLimit":1,"onConditions":["OOMKilled"]},{"action":"Fail","onConditions":["Evicted"]}]}}`
	policyAfter  = `{"apiVersion":"armadaproject.io/v1","kind":"RetryPolicy","metadata":{"name":"p"},"spec":{"defaultAction":"Fail","rules":[{"name":"a","action":"Retry","retryLimit":3,"onConditions":["OOMKilled"]},{"action":"Ignore","onConditions":["Evicted"]}]}}`
	policyGone   = `{"apiVersion":"armadaproject.io/v1","kind":"RetryPolicy","metadata":{"name":"old"},"spec":{"defaultAction":"Fail","rules":[{"name":"b","action":"Fail","onConditions":["Evicted"]}]}}`
	queueBound   = `{"apiVersion":"armadaproject.io/v1","kind":"Queue","name":"q","retryPolicies":["p"]}`
)

// TestChangesBetween: fields, generations, and the decisions of what changed and of nothing else.
func TestChangesBetween(t *testing.T) {
	t.Parallel()
	log := written{1: {policyBefore, policyGone}, 4: {policyAfter, queueBound}}
	c, err := query.ChangesBetween(t.Context(), log, threeGenerations(), 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, f := range c.Fields {
		fields = append(fields, f.String())
	}
	text := strings.Join(fields, "\n")
	for _, want := range []string{"added    queue q", "removed  policy old", "removed  rule old/b", "changed  rule p/a: retryLimit: 1 → 3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if len(c.Made) != 3 || c.Made[0].Author != "eve" || c.Made[2].Author != "bob" {
		t.Errorf("made by %v", c.Made)
	}
	var asked []query.Around
	decisions, err := c.Count(t.Context(), func(_ context.Context, a query.Around) (n query.BeforeAfter, err error) {
		if a.First != 1090*3600e9 || a.Last != 1190*3600e9 {
			t.Errorf("counted around %+v", a)
		}
		a.First, a.Last = 0, 0
		asked = append(asked, a)
		if a.Rule == "b" {
			return n, query.ErrAllQueues
		}
		n.Before.Retried, n.Before.FailedForGood, n.After.InShadow = 3, 1, 2
		return n, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	of := map[query.Around]int{}
	for _, a := range asked {
		of[a]++
	}
	want := map[query.Around]int{{}: 1, {Queue: "q"}: 1, {Policy: "p"}: 1, {Policy: "p", Rule: "a"}: 1, {Policy: "p", Rule: "#1"}: 1, {Policy: "old"}: 1, {Policy: "old", Rule: "b"}: 1}
	if !reflect.DeepEqual(of, want) {
		t.Errorf("counted of %v, want %v", of, want)
	}
	if len(decisions) != len(want)-1 {
		t.Errorf("%d rows: what the caller may not see is left out", len(decisions))
	}
	if got := decisions[0].Cells(); !reflect.DeepEqual(got, []string{"all", "3 → 0", "1 → 0", "75 % → -", "0 → 2"}) || len(got) != len(query.DecisionHeads()) {
		t.Errorf("cells %q", got)
	}
	if got, want := c.Counted(decisions, hour(1194).AsTime()), "Decisions in the 24 hours before generation 2 came → after generation 4, of which 3 whole hours passed; the hour of a change is in neither"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := c.Counted(decisions, hour(1215).AsTime()); strings.Contains(got, "passed") {
		t.Error(got)
	}
	decisions[1].BeforeAfter = query.BeforeAfter{}
	if got := c.Counted(decisions, hour(1215).AsTime()); len(query.Seen(decisions)) != len(decisions)-1 || !strings.HasSuffix(got, "; what has no decision in both is left out") {
		t.Error(got)
	}
	for i := range decisions {
		decisions[i].BeforeAfter = query.BeforeAfter{}
	}
	if got := c.Counted(decisions, hour(1215).AsTime()); len(query.Seen(decisions)) != 0 || !strings.HasPrefix(got, "There is no decision in the 24 hours before generation 2 came, or after generation 4;") {
		t.Error(got)
	}
	if _, err := query.ChangesBetween(t.Context(), log, threeGenerations(), 4, 1); err == nil || !strings.Contains(err.Error(), "generation 1 is older than 4") {
		t.Error(err)
	}
	failing := errors.New("no job database")
	if _, err := c.Count(t.Context(), func(context.Context, query.Around) (n query.BeforeAfter, err error) { return n, failing }); !errors.Is(err, failing) {
		t.Error(err)
	}
}

// TestChangesAreBounded: however many rules changed, so many are counted, and the others named as a number.
func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	var queues []string
	for name := range strings.SplitSeq("abcdefghijklmnopqrst", "") {
		queues = append(queues, strings.Replace(queueBound, `"q"`, `"`+name+`"`, 1))
	}
	c, err := query.ChangesBetween(t.Context(), written{1: append(queues, policyBefore), 2: {policyBefore}}, threeGenerations(), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	decisions, err := c.Count(t.Context(), func(context.Context, query.Around) (a query.BeforeAfter, err error) {
		n++
		a.Before.Retried = 1
		return a, nil
	})
	if err != nil || n != 13 {
		t.Errorf("counted %d times, %v", n, err)
	}
	if text := c.Counted(decisions, hour(2000).AsTime()); !strings.Contains(text, "without those of 8 resources more") {
		t.Error(text)
	}
	same, err := query.ChangesBetween(t.Context(), written{2: {policyBefore}}, threeGenerations(), 2, 2)
	if err != nil || len(same.Fields)+len(same.Made) != 0 {
		t.Errorf("%+v, %v", same, err)
	}
	all, err := query.ChangesBetween(t.Context(), written{1: {policyBefore}}, threeGenerations(), 0, 1)
	if err != nil || len(all.Fields) == 0 || len(all.Made) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
