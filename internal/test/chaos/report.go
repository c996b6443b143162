package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/test/e2e"
)

// notes are things that happened, counted by their text.
type notes struct {
	mu  sync.Mutex
	all map[string]int
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]int{}
	}
	n.all[text]++
}

// report is the summary, as markdown.
func (c *campaign) report(violations []string, err error) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Seed %d: %d faults in %s, %d checks, %d violations.", c.settings.seed, len(c.entries), time.Since(c.began).Round(time.Second), c.checks, len(violations))
	if err != nil {
		line("It ended early: %v", err)
	}
	for i, v := range violations {
		if i == 50 {
			line("* … and more")
			break
		}
		line("* %s", v)
	}
	lives, without := 0, 0
	for _, m := range c.evaluators {
		lives, without = lives+m.lives, without+m.without
	}
	s := c.sum
	line("\n| | |\n|---|---|")
	line("| partitions, events fed a second | %d, %d |", c.settings.partitions, c.settings.rate)
	line("| messages, answered | %d, %d |", s.Messages, s.Answered)
	line("| failed runs, each with one record | %d |", s.Failed)
	line("| decisions, not decided, parked | %d, %d, %d |", s.Decisions, s.NotDecided, s.Parked)
	line("| groups bound, ended; jobs that are no member of the one they name | %d, %d; %d |", s.Groups.Bound, s.Groups.Ended, s.Groups.Found)
	line("| members held, released, restarted, stopped | %d, %d, %d, %d |", s.Groups.Held, s.Groups.Unheld, s.Groups.Restarted, s.Groups.Stopped)
	line("| failed runs that a restart or an end had told to stop | %d |", s.Groups.Absorbed)
	line("| envelopes, claims | %d, %d |", s.Envelopes, s.Claims)
	line("| rows of the job database | %d |", s.Rows)
	line("| evaluators' lives, without a lease | %d, %d |", lives, without)
	line("| checkpoints restored | %d |", c.restored())
	line("| messages of decisions that were ignored | %s |", counts(s.Ignored))
	late := map[string]int{}
	for _, t := range c.tails {
		for why, n := range t.late {
			late[why] += n
		}
	}
	line("| of those, never accepted: garbage, and envelopes of old owners | %s |", counts(late))
	line("\nSeconds; p50 / p90 / max. Recovery: until every partition answered a probe published after the fault. Of its slowest partition: until the")
	line("probe was in the log, until the partition was claimed anew (where it was: n), and from the later of the two to the answer.")
	line("Job database: until all these answers were in it.\n")
	line("| fault | n | lasted | recovery | probe durable | claimed | n | answer | job database |")
	line("|---|---|---|---|---|---|---|---|---|")
	for _, k := range kinds() {
		c.row(&b, k.name+": "+k.means, func(e entry) bool { return e.Kind == k.name })
	}
	c.row(&b, "all", func(entry) bool { return true })
	if len(c.notes.all) > 0 {
		line("\nAlso seen:")
		for _, text := range slices.Sorted(maps.Keys(c.notes.all)) {
			line("* %d× %s", c.notes.all[text], text)
		}
	}
	for _, m := range c.members() {
		for _, d := range m.deaths {
			line("* %s ended by itself: %s", m.name, d)
		}
	}
	return b.String()
}

func (c *campaign) row(b *strings.Builder, name string, of func(entry) bool) {
	var lasted, recovery, durable, claim, answer, rows []int64
	for _, e := range c.entries {
		if !of(e) {
			continue
		}
		lasted, recovery, durable, answer = append(lasted, e.LengthMS), append(recovery, e.RecoveryMS), append(durable, e.DurableMS), append(answer, e.AnswerMS)
		rows = append(rows, e.RowsMS)
		if e.ClaimMS >= 0 {
			claim = append(claim, e.ClaimMS)
		}
	}
	if len(recovery) > 0 {
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %d | %s | %s |\n", name, len(recovery), spread(lasted), spread(recovery), spread(durable), spread(claim), len(claim), spread(answer), spread(rows))
	}
}

func counts(m map[string]int) string {
	var all []string
	for _, why := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s %d", why, m[why]))
	}
	return strings.Join(all, ", ")
}

// spread is p50 / p90 / max in seconds.
func spread(ms []int64) string {
	if len(ms) == 0 {
		return "–"
	}
	slices.Sort(ms)
	at := func(q float64) float64 { return float64(ms[min(len(ms)-1, int(q*float64(len(ms))))]) / 1e3 }
	return fmt.Sprintf("%.2f / %.2f / %.2f", at(0.5), at(0.9), at(1))
}

// dump keeps what the topics hold as recordings.
func (c *campaign) dump() error {
	for name, topic := range map[string]eventlog.Topic{"events": c.logs.Events, "decisions": c.logs.Decisions, "policies": c.logs.Policies} {
		f, err := os.Create(filepath.Join(c.settings.dir, name+".jsonl.gz"))
		if err != nil {
			return err
		}
		defer f.Close()
		w := recording.NewWriter(f)
		for p := range topic.Partitions() {
			err := e2e.Each(topic, p, func(m eventlog.Message) error { return w.Write(recording.Entry{Partition: p, Message: m}) })
			if err != nil {
				return fmt.Errorf("dump %s: %w", name, err)
			}
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}
