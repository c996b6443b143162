package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/test/model"
)

// TestKill9 kills `refloatctl up` KILLS times with SIGKILL while it is fed, and
// checks that nothing was lost and nothing decided twice. `make crash` runs it.
func TestKill9(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("KILLS"))
	if err != nil || kills < 1 {
		t.Skip("set KILLS to the number of kills, as `make crash` does; TestKilled is the short form")
	}
	seed := killSeed(t)
	t.Run("policies=one", func(t *testing.T) { killed(t, campaign{kills: kills, seed: seed, copies: 5, random: 800}) })
	t.Run("policies=changing", func(t *testing.T) {
		killed(t, campaign{kills: max(3, kills/5), seed: seed + 1, copies: 1, random: 300, changing: true})
	})
}

// TestKilled is TestKill9 in short.
func TestKilled(t *testing.T) {
	t.Parallel()
	seed, kills := killSeed(t), 4
	if testing.Short() {
		kills = 2
	}
	t.Run("policies=one", func(t *testing.T) {
		t.Parallel()
		killed(t, campaign{kills: kills, seed: seed, copies: 1, random: 100})
	})
	t.Run("policies=changing", func(t *testing.T) {
		t.Parallel()
		killed(t, campaign{kills: kills, seed: seed + 1, random: 120, changing: true})
	})
}

// killSeed is SEED, or one of the clock.
func killSeed(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("SEED")
	if s == "" {
		return uint64(time.Now().UnixNano() % 1e6)
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("SEED: %v", err)
	}
	return seed
}

// campaign is a series of lives of `refloatctl up`, each killed.
type campaign struct {
	kills          int
	seed           uint64
	copies, random int // of the history
	changing       bool

	t    *testing.T
	rng  *rand.Rand
	h    *history
	sets map[string]model.Policies // by digest

	// Of the data directory in use.
	data     string
	policies string
	tail     *tail // nil before the first life

	counted, uncounted, verified, changes int
}

// killed runs a campaign and checks what it leaves.
func killed(t *testing.T, c campaign) {
	t.Logf("SEED=%d", c.seed)
	c.t, c.rng, c.sets = t, rand.New(rand.NewPCG(c.seed, 9)), map[string]model.Policies{}
	c.h = makeHistory(t, c.seed, c.copies, c.random)
	for rounds := 1; c.counted < c.kills; rounds++ {
		if rounds > 5 {
			t.Fatalf("%d of %d kills counted, %d not: the history is too short for this machine", c.counted, c.kills, c.uncounted)
		}
		c.round()
	}
}

// round kills on one data directory until there were kills enough or all is
// fed, lets up drain, and checks everything.
func (c *campaign) round() {
	t, before, began := c.t, *c, time.Now()
	c.data, c.policies, c.tail = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "policies"), nil
	c.writePolicies()
	for c.counted < c.kills && (c.tail == nil || c.tail.total < c.h.total) {
		c.life()
	}
	ctl(t, "up", "--data", c.data, "--policies", c.policies, "--allow-empty", "--feed", c.h.file, "--quiet", "--exit-when-drained").exits(t, exitFine)
	c.tail.pump()
	c.tail.close()
	drained := time.Since(began)

	ctl(t, "verify", "--data", c.data).exits(t, exitFine).prints(t, fmt.Sprintf("deciding %d messages again", c.h.total), "0 messages not decided yet")
	sum := followed(t, c.data, c.h.messages, c.sets, func(job string) bool { return len(job) > 5 && c.h.real[job[:5]] })
	if !c.changing {
		want := ctl(t, "replay", "--log", app.Dir(c.data).Events(), "--policies", c.policies, "-o", "json").exits(t, exitFine).out
		got := ctl(t, "get", "decisions", "--data", c.data, "-o", "json").exits(t, exitFine).out
		// A replay has no rows: it cannot know that the job of a decision had ended there.
		if got = strings.ReplaceAll(got, `,"superseded":true`, ""); got != want {
			t.Errorf("get decisions and replay differ: %s", firstDifference(want, got))
		}
	}
	if sum.messages != uint64(c.h.total) {
		t.Errorf("%d messages answered, %d fed", sum.messages, c.h.total)
	}
	counted, uncounted := c.counted-before.counted, c.uncounted-before.uncounted
	t.Logf("%d kills counted, %d not counted, %d restarts, %d policy sets written, %d verifications between; %d messages; %d JobRequeued, %d JobFailed, %d NotDecided, %d Parked, %d RetryReady; "+
		"%d failed runs counted one by one; %d envelopes, %d claims, %d activations, %d envelopes ignored; %.1f s of lives, %.1f s of checks",
		counted, uncounted, counted+uncounted, c.changes-before.changes, c.verified-before.verified, sum.messages,
		sum.kinds[model.JobRequeued], sum.kinds[model.JobFailed], sum.kinds[model.NotDecided], sum.kinds[model.Parked], sum.kinds[model.RetryReady],
		sum.failed, sum.envelopes, sum.claims, sum.activations, sum.ignored, drained.Seconds(), (time.Since(began) - drained).Seconds())
}

// reach is how long a life is fed at most, but for some. The rest of the feed
// should last a few times that for each kill that is still to come.
const reach = 250 * time.Millisecond

// pace is so many times the recorded time.
func (c *campaign) pace() float64 {
	lives, fed := 2.5, 0
	if c.changing {
		lives = 10 // some are longer, for changes to be noticed
	}
	if c.tail != nil {
		fed = c.tail.total
	}
	rest := c.h.times[fed:]
	n := int(float64(len(rest)) / (lives * float64(c.kills-c.counted)))
	return max(1, float64(rest[min(max(n, 10), len(rest)-1)]-rest[0])/float64(reach))
}

// life starts up, kills it at a random moment, and looks at what was fed.
func (c *campaign) life() {
	t, fed := c.t, 0
	if c.tail != nil {
		fed = c.tail.total
	}
	p := start(t, "up", "--data", c.data, "--policies", c.policies, "--allow-empty", "--feed", c.h.file, "--quiet", "--pace", fmt.Sprintf("%.3fx", c.pace()))
	if c.tail == nil {
		c.tail = openTail(t, c.data, c.h, p)
	}
	if c.rng.IntN(8) > 0 {
		c.tail.await(p, nil) // the first message of this life
		if c.changing && c.rng.IntN(3) == 0 {
			c.writePolicies() // noticed within a second, or by the next life
		}
	}
	moment := time.Duration(c.rng.Int64N(int64(reach)))
	if c.tail.total == fed {
		moment *= 4 // starting takes longer
	}
	if c.changing && c.rng.IntN(4) == 0 {
		moment += time.Second
	}
	c.tail.await(p, time.After(moment))
	select {
	case <-p.done:
		t.Fatalf("up ended by itself: %v\n%s", p.cmd.ProcessState, p.err.text())
	default:
	}
	p.kill()
	if text := p.err.text(); strings.Contains(text, "ERROR") || strings.Contains(text, "panic") {
		t.Errorf("up complained:\n%s", tailOf(text))
	}
	c.tail.pump()
	// What was written, but not announced as durable, may still come to light:
	// so a kill very near the end does not count.
	if c.tail.total > fed && c.tail.total < c.h.total-c.h.total/100 {
		c.counted++
	} else {
		c.uncounted++
	}
	if c.rng.IntN(10) == 0 {
		c.verified++
		ctl(t, "verify", "--data", c.data, "--allow-waiting").exits(t, exitFine)
	}
	if c.changing && c.rng.IntN(2) == 0 {
		c.writePolicies()
	}
}

func (c *campaign) writePolicies() {
	p := makePolicies(c.seed + 1000*uint64(c.changes))
	c.changes++
	d := writePolicies(c.t, c.policies, p).Digest()
	c.sets[string(d[:])] = p
}

// tail follows the events log of another process and checks that each message
// is the next one of the history: what a reader was given stays, whatever is killed.
type tail struct {
	t       *testing.T
	h       *history
	log     *filelog.Log
	readers [partitions]eventlog.Reader
	chunk   []eventlog.Message
	seen    [partitions]int
	total   int
}

// openTail waits until the process has created the log.
func openTail(t *testing.T, data string, h *history, p *process) *tail {
	t.Helper()
	x := &tail{t: t, h: h, chunk: make([]eventlog.Message, 256)}
	until(t, "the events log is created", func() bool {
		select {
		case <-p.done:
			t.Fatalf("up ended: %s", p.err.text())
		default:
		}
		log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: app.Dir(data).Events(), ReadOnly: true})
		x.log = log
		return err == nil
	})
	for i := range x.readers {
		r, err := x.log.Open(i, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		x.readers[i] = r
	}
	t.Cleanup(x.close)
	return x
}

// pump reads what there is.
func (x *tail) pump() {
	x.t.Helper()
	for p, r := range x.readers {
		for {
			n, err := r.Read(x.chunk)
			if err != nil {
				x.t.Fatalf("follow partition %d: %v", p, err)
			}
			if n == 0 {
				break
			}
			for i := range x.chunk[:n] {
				if x.seen[p] >= len(x.h.messages[p]) {
					x.t.Fatalf("partition %d has more messages than the history: %v", p, x.chunk[i].Position)
				}
				sameMessage(x.t, p, x.seen[p], &x.h.messages[p][x.seen[p]], &x.chunk[i])
				x.seen[p]++
				x.total++
			}
		}
	}
}

// await follows until the time is up or the process has ended; with no time
// set, until something came.
func (x *tail) await(p *process, up <-chan time.Time) {
	x.t.Helper()
	timeout := time.After(limit)
	for before := x.total; ; {
		x.pump()
		if up == nil && x.total > before {
			return
		}
		select {
		case <-x.readers[0].Changed():
		case <-x.readers[1].Changed():
		case <-x.readers[2].Changed():
		case <-up:
			return
		case <-p.done:
			return
		case <-timeout:
			x.t.Fatalf("nothing is fed:\n%s", p.err.text())
		}
	}
}

func (x *tail) close() { _ = x.log.Close() }

// firstDifference names the first line in which two texts differ.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
