package main

import (
	"fmt"
	"iter"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

const partitions = 3

type message struct {
	partition int
	key       string
	payload   []byte
	fails     []string // runs that it ends with a failure, or that failed before
}

// input is the recordings, without gangs.
type input struct {
	messages       []original
	events, failed int
}

type original struct {
	partition int
	key       string
	*pb.EventSequence
}

func readInput(dir string) (*input, error) {
	in, ended := &input{}, map[string]bool{}
	for _, name := range []string{"plain", "chaos", "retried", "preempted"} {
		entries, err := recording.ReadFile(dir + name + ".jsonl.gz")
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var seq pb.EventSequence
			if err := proto.Unmarshal(e.Message.Payload, &seq); err != nil {
				return nil, err
			}
			for _, ev := range seq.Events {
				delete(ev.GetSubmitJob().GetObjectMeta().GetAnnotations(), "armadaproject.io/gangId")
				if run := ev.GetJobRunSucceeded().GetRunId(); run != "" {
					ended[run] = true
				}
			}
			for _, run := range fails(&seq) {
				if !ended[run] {
					ended[run] = true
					in.failed++
				}
			}
			in.messages = append(in.messages, original{e.Partition % partitions, e.Message.Key, &seq})
			in.events += len(seq.Events)
		}
	}
	return in, nil
}

func fails(seq *pb.EventSequence) (runs []string) {
	for _, ev := range seq.Events {
		if v := ev.GetJobRunPreempted(); v != nil {
			runs = append(runs, v.PreemptedRunId)
		}
		for _, x := range ev.GetJobRunErrors().GetErrors() {
			if x.Terminal {
				runs = append(runs, ev.GetJobRunErrors().RunId)
				break
			}
		}
	}
	return runs
}

// times is the recordings n times, each time of other jobs and runs.
func (in *input) times(n int) iter.Seq[message] { return in.between(0, n) }

// from is what follows times(n), without end.
func (in *input) from(n int) iter.Seq[message] { return in.between(n, math.MaxInt) }

func (in *input) between(from, to int) iter.Seq[message] {
	return func(yield func(message) bool) {
		for i := from; i < to; i++ {
			for _, o := range in.messages {
				seq := proto.CloneOf(o.EventSequence)
				for _, ev := range seq.Events {
					rename(ev.ProtoReflect(), fmt.Sprintf("%04x", i))
				}
				payload, err := proto.Marshal(seq)
				if err != nil {
					panic(err)
				}
				if !yield(message{o.partition, o.key, payload, fails(seq)}) {
					return
				}
			}
		}
	}
}

// rename puts a mark in place of the first letters of job and run ids.
func rename(m protoreflect.Message, mark string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			rename(v.Message(), mark)
		case strings.HasSuffix(string(f.Name()), "job_id") || strings.HasSuffix(string(f.Name()), "run_id"):
			if id := v.String(); len(id) > len(mark) {
				m.Set(f, protoreflect.ValueOfString(mark+id[len(mark):]))
			}
		}
		return true
	})
}
