package bench_test

import (
	"runtime/debug"
	"testing"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

func BenchmarkProf(b *testing.B) {
	set := examplePolicies(b)
	h := simulated(b, 6000)
	h2 := recorded(b, "plain", "chaos", "retried", "preempted")
	oneCore(b)
	for _, in := range []struct {
		name string
		h    *history
	}{{"errors", h}, {"rec", h2}} {
		h := in.h
		run := func(name string, f func()) {
			b.Run(in.name+"/"+name, func(b *testing.B) {
				best := 1e18
				for b.Loop() {
					m := measure(f)
					best = min(best, m.cpu)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(best/float64(h.events), "best-ns/event")
			})
		}
		run("replay", func() { replayed(b, h, set) })
		run("replay-nogc", func() { debug.SetGCPercent(-1); replayed(b, h, set); debug.SetGCPercent(100) })
		run("unmarshal", func() { unmarshalled(b, h) })
		run("unmarshal-nogc", func() { debug.SetGCPercent(-1); unmarshalled(b, h); debug.SetGCPercent(100) })
		run("read", func() {
			chunk := make([]eventlog.Message, 256)
			for p := range h.partitions {
				r, _ := h.Open(p, eventlog.Start)
				for {
					n, _ := r.Read(chunk)
					if n == 0 {
						break
					}
				}
			}
		})
		run("decode", func() {
			var d events.Decoder
			for _, p := range h.partitions {
				for i := range p {
					_, _ = d.Decode(p[i].Payload)
				}
			}
		})
		run("decode+fold", func() {
			for _, p := range h.partitions {
				var d events.Decoder
				s, _ := projection.NewState(projection.NewMemory(), projection.NoWatermark, 24*3600*1e9)
				for i := range p {
					seq, err := d.Decode(p[i].Payload)
					if err != nil {
						continue
					}
					s.Fold(seq, p[i].MeantPublish())
					for i := range s.Failures() {
						s.Settle(i)
					}
					_ = s.Ready(nil)
					_ = s.Finish()
				}
			}
		})
	}
}
