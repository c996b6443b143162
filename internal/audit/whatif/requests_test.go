package whatif

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestShapes: jobs whose pods have the same shape request the same, whatever else is in them.
func TestShapes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(27, 30))
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	container := func() *pb.Container {
		c := &pb.Container{Name: fmt.Sprint("c", rng.IntN(100)), RestartPolicy: []string{"", "Always"}[rng.IntN(2)]}
		if rng.IntN(4) > 0 {
			amount := []string{"1", "2", "500m", "x"}[rng.IntN(4)]
			of := map[string]*pb.Quantity{[]string{"cpu", "memory", "nvidia.com/gpu"}[rng.IntN(3)]: {Text: &amount}}
			needs := &pb.ResourceRequirements{Requests: of}
			if rng.IntN(4) == 0 {
				needs = &pb.ResourceRequirements{Limits: of}
			}
			c.Resources = encoded(needs)
		}
		return c
	}
	s := shapes{known: map[string]*jobdb.Requests{}}
	const jobs = 20_000
	known := 0
	for i := range jobs {
		pod := &pb.PodSpec{PriorityClassName: fmt.Sprint(rng.IntN(100))}
		for range rng.IntN(3) {
			pod.Containers = append(pod.Containers, encoded(container()))
		}
		for range rng.IntN(3) {
			pod.InitContainers = append(pod.InitContainers, container())
		}
		job := &pb.SubmitJob{
			JobId: fmt.Sprint(i), ObjectMeta: &pb.ObjectMeta{Name: fmt.Sprint(i)},
			MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: pod}},
		}
		ev := &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: job}}
		if rng.IntN(2) == 0 {
			ev = &pb.Event{Event: &pb.Event_KnownJob{KnownJob: job}}
		}
		got, want := s.read(&events.Event{Raw: encoded(ev)}), sink.RequestsOf(job)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Fatalf("job %v requests %+v, want %+v", job, got, want)
		}
		if want != nil {
			known++
		}
	}
	if known < jobs/4 || known > 3*jobs/4 || len(s.known) >= jobs/4 {
		t.Errorf("of %d jobs, it is known what %d request; %d shapes", jobs, known, len(s.known))
	}
}
