// Chaos runs a campaign of faults against three evaluators and two ingesters on a
// real Pulsar broker, while it feeds events. At the end it checks everything that
// e2e.Check checks.
//
// It is a test in the form of a program: it draws faults from --seed, and records
// what it did and how long each step took.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	seed       uint64
	length     time.Duration // 0: by faults
	faults     int           // 0: by length
	partitions int
	rate       int     // events a second
	leaseless  float64 // share of the evaluators' lives
	checkEvery int     // faults; 0: at the end only
	limit      time.Duration
	report     string
	dir        string
	only       string
	recordings string
	policies   string
}

// ciFaults is how many faults CI makes: no long ones are among them.
const ciFaults = 12

func (s *settings) long() bool { return s.length > 0 || s.faults > ciFaults }

func main() {
	var s settings
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()%1e6), "of the faults that are drawn")
	flag.DurationVar(&s.length, "for", 0, "how long faults are made (default: until --faults)")
	flag.IntVar(&s.faults, "faults", 0, "how many faults are made (default 20, if --for says nothing)")
	flag.IntVar(&s.partitions, "partitions", 6, "of events and decisions")
	flag.IntVar(&s.rate, "rate", 200, "events fed a second")
	flag.Float64Var(&s.leaseless, "leaseless", 0.4, "share of the evaluators' lives in which the broker does not keep others from publishing")
	flag.IntVar(&s.checkEvery, "check-every", 0, "check after so many faults too, not only at the end")
	flag.DurationVar(&s.limit, "limit", 2*time.Minute, "how long a recovery may take")
	flag.StringVar(&s.report, "report", "", "file for the summary, as markdown")
	flag.StringVar(&s.dir, "dir", "", "directory for state, logs and the journal (default: a temporary one, kept when something is wrong)")
	flag.StringVar(&s.only, "only", "", "make only faults of this kind")
	flag.StringVar(&s.recordings, "recordings", filepath.Join("testdata", "recordings"), "directory of the recordings that are fed")
	flag.StringVar(&s.policies, "policies", filepath.Join("examples", "policies"), "directory of the policies")
	flag.Parse()
	if s.length == 0 && s.faults == 0 {
		s.faults = 20
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// errViolated says that something did not hold.
var errViolated = errors.New("a promise was broken")

func run(ctx context.Context, s settings) (err error) {
	kept := s.dir != ""
	if !kept {
		if s.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	} else if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	} else if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	fmt.Printf("seed %d, in %s\n", s.seed, s.dir)
	c, err := newCampaign(ctx, s)
	if err != nil {
		return err
	}
	violations, err := c.run(ctx)
	text := c.report(violations, err)
	fmt.Print("\n" + text)
	if s.report != "" {
		err = errors.Join(err, os.WriteFile(s.report, []byte(text), 0o600))
	}
	if len(violations) > 0 {
		err = errors.Join(err, fmt.Errorf("%w (%d times); everything is kept in %s", errViolated, len(violations), s.dir))
		err = errors.Join(err, c.dump())
	}
	err = errors.Join(err, c.close())
	if err == nil && !kept {
		err = os.RemoveAll(s.dir)
	}
	return err
}
