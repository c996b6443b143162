package armadabox_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/refloat/refloat/internal/test/armadabox"
	"github.com/refloat/refloat/internal/test/e2e"
	"github.com/refloat/refloat/internal/test/scenario"
)

func longTier() bool { return armadabox.Long() }

// step waits for its moment and does what it says.
func (r *run) step(s scenario.Step) error {
	if s.When != nil {
		if err := r.await(*s.When); err != nil {
			return err
		}
	}
	switch {
	case s.Ask != "":
		return r.ask(s, func() (string, error) { return r.perform(s.Ask) })
	case s.Query != "":
		return r.ask(s, func() (out string, err error) {
			err = r.db.QueryRow(r.ctx, `SELECT (`+r.expand(s.Query)+`)::text`).Scan(&out)
			return out, err
		})
	case s.Do != "":
		out, err := r.perform(s.Do)
		return r.right(s, out, err)
	}
	return nil
}

// ask asks again and again until the answer is right.
func (r *run) ask(s scenario.Step, question func() (string, error)) error {
	var wrong error // the last answer, but for one that the deadline cut short
	waited := e2e.Until(r.ctx, func() (bool, error) {
		out, err := question()
		answer := r.right(s, out, err)
		if answer == nil || r.ctx.Err() == nil {
			wrong = answer
		}
		return answer == nil, nil
	})
	if waited != nil {
		return errors.Join(wrong, waited)
	}
	return nil
}

// right says whether a command said what it should.
func (r *run) right(s scenario.Step, out string, err error) error {
	switch {
	case !s.Refuse && err != nil:
		return err
	case s.Refuse && err == nil:
		return fmt.Errorf("%s%s%s was not refused:\n%s", s.Do, s.Ask, s.Query, out)
	case !regexp.MustCompile(s.Output).MatchString(out):
		return fmt.Errorf("%s%s%s printed nothing like %s:\n%s", s.Do, s.Ask, s.Query, s.Output, out)
	}
	return nil
}

// await waits until all jobs of a name are as the moment says, for as long as it says.
func (r *run) await(m scenario.Moment) error {
	holds := func() bool { return m.Holds(r.of(m.Job)) }
	if err := r.until(fmt.Sprintf("%s is %s (run %d)", m.Job, m.Is, m.Run), holds); err != nil || m.Stays == 0 {
		return err
	}
	stays, cancel := context.WithTimeout(r.ctx, time.Duration(m.Stays))
	defer cancel()
	broken := e2e.Until(stays, func() (bool, error) {
		if err := r.observe(); err != nil {
			return false, nil
		}
		return !holds(), nil
	})
	if broken == nil {
		return fmt.Errorf("%s does not stay %s for %v", m.Job, m.Is, time.Duration(m.Stays))
	}
	return r.ctx.Err()
}

var variable = regexp.MustCompile(`\$([a-z][a-z0-9]*)(?:\.(node|executor|run))?`)

// expand replaces $queue, $set, $db, $api (our policy API), $files (the directory of
// the scenario's files), $policies (that of our policies), $dir, $a (the id of the job a), $a.node, $a.executor and
// $a.run (of its last run).
func (r *run) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(v string) string {
		m := variable.FindStringSubmatch(v)
		switch m[1] {
		case "queue":
			return r.Name
		case "set":
			return r.Set()
		case "db":
			return r.SchedulerDB
		case "dir":
			return r.Dir
		case "api":
			return r.API
		case "policies":
			return r.Policies
		case "files":
			return r.files
		}
		j := r.one(m[1])
		if m[2] == "" {
			return j.ID
		}
		if len(j.Runs) == 0 {
			return v
		}
		last := j.Runs[len(j.Runs)-1]
		return map[string]string{"node": last.Node, "executor": last.Executor, "run": last.ID}[m[2]]
	})
}

// perform does one thing:
//
//	armadactl ARGS…, refloatctl ARGS…   the real programs
//	armadactl-on-ours ARGS…             armadactl against our policy API
//	submit JOB…                         jobs that come later
//	start PROGRAM ARGS…                 as Armada names them, with more arguments if any; also broker and postgres
//	stop, kill PROGRAM
//	restart, crash PROGRAM              stop or kill, then start
//	pause, resume PROGRAM
//	truncate TOPIC                      as retention does in time
func (r *run) perform(text string) (string, error) {
	fields := strings.Fields(strings.ReplaceAll(text, "$fault", r.Fault))
	if len(fields) < 2 {
		return "", fmt.Errorf("cannot do %q: want a verb and what it is for", text)
	}
	for i := range fields {
		fields[i] = r.expand(fields[i])
	}
	verb, args := fields[0], fields[1:]
	switch verb {
	case "armadactl":
		return r.Armadactl(r.ctx, args...)
	case "armadactl-on-ours":
		return r.ArmadactlOnOurs(r.ctx, args...)
	case "refloatctl":
		return r.Refloatctl(r.ctx, args...)
	case "submit":
		var jobs []scenario.Job
		for _, j := range r.Jobs {
			if slices.Contains(args, j.Name) {
				jobs = append(jobs, j)
			}
		}
		return "", r.submit(jobs)
	case "truncate":
		return "", r.Broker.Truncate(r.Topic(args[0]))
	case "restart":
		return "", errors.Join(r.operate("stop", args[0]), r.operate("start", args[0]))
	case "crash":
		return "", errors.Join(r.operate("kill", args[0]), r.operate("start", args[0]))
	}
	return "", r.operate(verb, args[0], args[1:]...)
}

// operate starts, ends, pauses or resumes a part.
func (r *run) operate(verb, part string, more ...string) error {
	do := map[string]func() error{
		"start":  func() error { return r.Run(r.ctx, part, more...) },
		"stop":   func() error { return r.Stop(r.ctx, part) },
		"kill":   func() error { return r.Kill(part) },
		"pause":  func() error { return r.Signal(part, syscall.SIGSTOP) },
		"resume": func() error { return r.Signal(part, syscall.SIGCONT) },
	}
	switch part {
	case "broker":
		do = map[string]func() error{
			"start": func() error { return r.Broker.Restart(r.ctx) }, "stop": r.Broker.Kill, "kill": r.Broker.Kill,
			"pause": r.Broker.Pause, "resume": r.Broker.Resume,
		}
	case "postgres":
		do = map[string]func() error{
			"start": func() error { r.Postgres.Restart(r.t); return nil },
			"stop":  func() error { r.Postgres.Stop(r.t); return nil },
			"kill":  func() error { r.Postgres.Kill(r.t); return nil },
		}
	}
	f, ok := do[verb]
	if !ok {
		return fmt.Errorf("cannot %s %s", verb, part)
	}
	if err := f(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, part, err)
	}
	return nil
}
