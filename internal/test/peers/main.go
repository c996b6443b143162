// Peers runs the same job by Refloat's evaluator on Pulsar and by programs on
// Kafka, one after the other on this machine, and prints one table:
//
//	go run . -bin DIR -work DIR -times "20 200" -live 20s streams flink
//
// The job: recordings, so many times, in three partitions; state for each job;
// three rules; a record for each failed run. Each program must say of each run what
// Refloat says. Annotations of gangs are left out of the input, since the programs
// know none. See docs/internals/performance.md for what is equal and what is not.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

type settings struct {
	bin, work, java string
	times           []int
	rounds          int
	live            time.Duration
}

func main() {
	log.SetFlags(log.Ltime)
	var s settings
	times := flag.String("times", "20", "how many times the recordings, space separated")
	flag.StringVar(&s.bin, "bin", "../../../bin", "directory of our programs")
	flag.StringVar(&s.work, "work", "/tmp/peers", "directory for all data")
	flag.StringVar(&s.java, "java", "/tmp/peers/java", "directory of the Java programs, built")
	flag.IntVar(&s.rounds, "rounds", 1, "how often to run each; the table has medians")
	flag.DurationVar(&s.live, "live", 0, "after the first of -times, send 1,000 messages/s for so long, then kill the program")
	flag.Parse()
	for _, f := range strings.Fields(*times) {
		n, err := strconv.Atoi(f)
		if err != nil {
			log.Fatal(err)
		}
		s.times = append(s.times, n)
	}
	if err := run(context.Background(), s, append([]string{"refloat"}, flag.Args()...)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, s settings, programs []string) error {
	in, err := readInput("../../../testdata/recordings/")
	if err != nil {
		return err
	}
	fmt.Printf("%d messages, %d events, %d failed runs in the recordings\n", len(in.messages), in.events, in.failed)
	for i, n := range s.times {
		got := map[string][]result{}
		var rows []string
		for range s.rounds {
			var refloat map[string]string
			for _, p := range programs {
				live := s.live
				if i > 0 {
					live = 0
				}
				r, said, err := measure(ctx, s, in, p, n, live)
				if err != nil {
					return fmt.Errorf("%s × %d: %w", p, n, err)
				}
				if refloat == nil {
					refloat = said
				} else if err := same(refloat, said); err != nil {
					return fmt.Errorf("%s × %d: %w", p, n, err)
				}
				rows = r.names
				got[p] = append(got[p], r)
				log.Println(p, "×", n, r)
			}
		}
		fmt.Printf("\n| × %d | %s |\n|---%s|\n", n, strings.Join(programs, " | "), strings.Repeat("|---", len(programs)))
		for _, name := range rows {
			fmt.Printf("| %s", name)
			for _, p := range programs {
				fmt.Printf(" | %.4g", median(got[p], name))
			}
			fmt.Println(" |")
		}
	}
	return nil
}

func median(rs []result, name string) float64 {
	var v []float64
	for _, r := range rs {
		v = append(v, r.values[name])
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// same says where two programs differ.
func same(a, b map[string]string) error {
	for run, x := range a {
		if y := b[run]; x != y {
			return fmt.Errorf("run %s: refloat says %q, it says %q", run, x, y)
		}
	}
	return nil
}

// result is what one run measured.
type result struct {
	names  []string
	values map[string]float64
}

func (r *result) add(name string, v float64) {
	r.names = append(r.names, name)
	r.values[name] = v
}

func (r result) String() string {
	var b strings.Builder
	for _, n := range r.names {
		fmt.Fprintf(&b, "%s %.4g; ", n, r.values[n])
	}
	return b.String()
}

// broker is where a program reads events and writes decisions.
type broker interface {
	load(ctx context.Context, messages func(func(message) bool)) error // durably, in large batches
	send(message) error                                                // at once
	follow(ctx context.Context, record func([]byte)) error             // encoded records that are final
	program() (path string, args []string)
	close() error
}

// watch is what a reader has seen of a program's decisions.
type watch struct {
	sync.Mutex
	said        map[string]string // by run
	at          map[string]time.Time
	first, half time.Time
	want        int
	done        chan struct{} // closed when there are as many as wanted
	killed      time.Time     // messages sent from then on
	sentAfter   map[string]bool
	recovered   chan time.Time
}

func (w *watch) record(raw []byte) {
	var r pb.Record
	if proto.Unmarshal(raw, &r) != nil {
		return
	}
	run, says := "", ""
	switch v := r.Record.(type) {
	case *pb.Record_JobRequeued:
		run, says = v.JobRequeued.RunId, "retry "+v.JobRequeued.Rule
	case *pb.Record_JobFailed:
		run, says = v.JobFailed.RunId, "fail"
	case *pb.Record_NotDecided:
		run, says = v.NotDecided.RunId, "not decided"
	default:
		return
	}
	now := time.Now()
	w.Lock()
	defer w.Unlock()
	if _, before := w.said[run]; before {
		return
	}
	if len(w.said) == 0 {
		w.first = now
	}
	w.said[run] = says
	if w.at != nil {
		w.at[run] = now
	}
	if len(w.said) == w.want/2 {
		w.half = now
	}
	if len(w.said) == w.want {
		close(w.done)
	}
	if w.sentAfter[run] {
		w.sentAfter = nil
		w.recovered <- now
	}
}

func measure(ctx context.Context, s settings, in *input, name string, n int, live time.Duration) (_ result, _ map[string]string, err error) {
	dir := filepath.Join(s.work, name)
	if err := os.RemoveAll(dir); err != nil {
		return result{}, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o755); err != nil {
		return result{}, nil, err
	}
	b, err := open(ctx, s, name, dir)
	if err != nil {
		return result{}, nil, err
	}
	defer func() { err = cmp.Or(err, b.close()) }()
	if err := b.load(ctx, in.times(n)); err != nil {
		return result{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	w := &watch{said: map[string]string{}, want: n * in.failed, done: make(chan struct{}), recovered: make(chan time.Time, 1)}
	go func() {
		if err := b.follow(ctx, w.record); err != nil && ctx.Err() == nil {
			log.Println(name, err)
		}
	}()
	start := time.Now()
	p, err := startProgram(b, dir)
	if err != nil {
		return result{}, nil, err
	}
	defer func() { p.kill() }()
	select {
	case <-w.done:
	case <-p.ended:
		return result{}, nil, fmt.Errorf("it has ended: see %s/log", dir)
	case <-ctx.Done():
		return result{}, nil, fmt.Errorf("%d decisions of %d: see %s/log", len(w.said), w.want, dir)
	}
	end, events := time.Now(), float64(n*in.events)
	r := result{values: map[string]float64{}}
	r.add("events/s from the first decision", events/end.Sub(w.first).Seconds())
	r.add("events/s in the second half", events/2/end.Sub(w.half).Seconds())
	r.add("events/s from the start of the program", events/end.Sub(start).Seconds())
	r.add("CPU, µs an event", p.cpu().Seconds()*1e6/events)
	r.add("peak RSS, MB", p.peak())
	r.add("disk, MB", allocated(filepath.Join(dir, "state")))
	w.Lock()
	said := maps.Clone(w.said)
	w.Unlock()
	counts := map[string]int{}
	for _, x := range said {
		counts[x]++
	}
	log.Println(name, "×", n, counts)
	if live > 0 {
		if p, err = goLive(ctx, in, b, p, w, dir, n, live, &r); err != nil {
			return r, nil, err
		}
	}
	return r, said, nil
}

// goLive sends messages at a rate, each at its appointed time, kills the program, goes on, and starts it again.
func goLive(ctx context.Context, in *input, b broker, p *process, w *watch, dir string, n int, live time.Duration, r *result) (*process, error) {
	const rate = 1000
	sent := map[string]time.Time{}
	w.Lock()
	w.at = map[string]time.Time{}
	w.Unlock()
	stop := make(chan struct{})
	go func() {
		i, begin := 0, time.Now()
		for m := range in.from(n) {
			due := begin.Add(time.Duration(i) * time.Second / rate)
			i++
			time.Sleep(time.Until(due))
			select {
			case <-stop:
				return
			default:
			}
			w.Lock()
			for _, run := range m.fails {
				if _, before := sent[run]; !before {
					sent[run] = due
					if !w.killed.IsZero() && w.sentAfter != nil {
						w.sentAfter[run] = true
					}
				}
			}
			w.Unlock()
			if err := b.send(m); err != nil {
				log.Println(err)
				return
			}
		}
	}()
	defer close(stop)
	time.Sleep(live)
	w.Lock()
	var ms []float64
	for run, due := range sent {
		if at, ok := w.at[run]; ok && time.Since(due) < live-5*time.Second { // what the first five seconds warm up is left out
			ms = append(ms, at.Sub(due).Seconds()*1e3)
		}
	}
	w.killed, w.sentAfter = time.Now(), map[string]bool{}
	w.Unlock()
	slices.Sort(ms)
	if len(ms) == 0 {
		return p, fmt.Errorf("no decision in %v", live)
	}
	r.add("p50 at 1,000 messages/s, ms", ms[len(ms)/2])
	r.add("p99 at 1,000 messages/s, ms", ms[len(ms)*99/100])
	p.kill()
	p, err := startProgram(b, dir)
	if err != nil {
		return p, err
	}
	select {
	case at := <-w.recovered:
		r.add("kill -9 to the next decision, s", at.Sub(w.killed).Seconds())
	case <-ctx.Done():
		return p, fmt.Errorf("no decision after kill -9: see %s/log", dir)
	}
	return p, nil
}
