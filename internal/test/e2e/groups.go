package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// groupPolicies are those that the histories of groups name.
func groupPolicies() model.Policies {
	one := &model.Restarts{Limit: new(1)}
	return model.Policies{Groups: []model.GroupPolicy{
		{Name: "train", MaxRestarts: new(3), Parts: []model.GroupPart{
			{Name: "driver"},
			{Name: "workers", Replicas: new(2), Members: new(4), After: []string{"driver"}},
		}},
		{Name: "flow", MaxRestarts: new(2), Completed: "Keep", Rules: []model.GroupRule{
			{Name: "lost", Action: "RestartPart", CountsTowardMax: new(false), Limit: new(1)},
			{Name: "rest", Action: "RestartGroup"},
		}, Parts: []model.GroupPart{
			{Name: "main", Members: new(6), Parallelism: new(2), RetryLimit: new(4), OnMemberFailure: "Continue", MaxFailedMembers: new(2)},
		}},
		{Name: "array", Restarts: one, Rules: []model.GroupRule{
			{Name: "bad-input", Action: "Leave", Parts: []string{"eval"}},
			{Name: "flaky", Action: "Halt"},
		}, Parts: []model.GroupPart{
			{Name: "eval", Replicas: new(2), Members: new(3), MinMembers: new(2)},
			{Name: "main", Members: new(2), After: []string{"eval"}},
		}},
	}}
}

// WriteGroupPolicies copies a directory of policies, and adds those that the histories of groups name.
func WriteGroupPolicies(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, f := range groupPolicies().YAML(false) {
		if err := os.WriteFile(filepath.Join(to, "histories-"+f.Name), f.Data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// groupHistories are histories of groups and gangs.
func groupHistories() (*pool, error) {
	policies := groupPolicies()
	p := &pool{jobs: "01job"}
	for seed := range uint64(64) {
		var source []recorded
		for _, m := range model.GenerateGroups(seed, model.GroupOptions{Policies: &policies, Steady: true, Clean: true}).Messages {
			seq := &pb.EventSequence{}
			if err := proto.Unmarshal(m.Payload, seq); err != nil {
				return nil, fmt.Errorf("history of groups %d: %w", seed, err)
			}
			source = append(source, recorded{m.Publish, seq})
		}
		p.sources = append(p.sources, source)
	}
	return p, nil
}

// Groups counts records of groups.
type Groups struct {
	Bound, Found, Ended              int
	Held, Unheld, Restarted, Stopped int // members
	Absorbed                         int // failures of runs that were told to stop, or of what has ended
}

func (g *Groups) add(o *Groups) {
	g.Bound, g.Found, g.Ended = g.Bound+o.Bound, g.Found+o.Found, g.Ended+o.Ended
	g.Held, g.Unheld, g.Restarted, g.Stopped = g.Held+o.Held, g.Unheld+o.Unheld, g.Restarted+o.Restarted, g.Stopped+o.Stopped
	g.Absorbed += o.Absorbed
}

// groupScan follows the records of groups plainly. It is for logs in which every queue
// enforces, and that are shorter than the horizon.
type groupScan struct {
	Groups

	wrong       []string
	ended       map[string]bool   // groups
	held        map[string]bool   // jobs
	stoppedRuns map[Run]uint32    // runs that a restart told to stop, and its generation
	begun       map[string]uint32 // generation of each job's last restart
	used        map[string]uint32 // restarts of each group
}

func newGroupScan() groupScan {
	return groupScan{
		ended: map[string]bool{}, held: map[string]bool{}, stoppedRuns: map[Run]uint32{}, begun: map[string]uint32{}, used: map[string]uint32{},
	}
}

func groupKey(queue, set, name string) string { return strings.Join([]string{queue, set, name}, "/") }

func (s *groupScan) bad(format string, args ...any) {
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	}
}

func (s *groupScan) take(r *pb.Record) {
	switch v := r.Record.(type) {
	case *pb.Record_JobRequeued:
		s.decision(v.JobRequeued)
	case *pb.Record_JobFailed:
		s.decision(v.JobFailed)
	case *pb.Record_GroupBound:
		s.Bound++
		if k := groupKey(v.GroupBound.Queue, v.GroupBound.JobSet, v.GroupBound.Group); s.ended[k] {
			s.bad("group %s is bound again", k)
		}
	case *pb.Record_GroupFinding:
		s.Found++
	case *pb.Record_MemberHeld:
		s.Held++
		if s.held[v.MemberHeld.JobId] {
			s.bad("job %s is held that is held", v.MemberHeld.JobId)
		}
		s.held[v.MemberHeld.JobId] = true
	case *pb.Record_MemberReleased:
		s.Unheld++
		s.starts(v.MemberReleased)
		if !s.held[v.MemberReleased.JobId] {
			s.bad("job %s is released that is not held", v.MemberReleased.JobId)
		}
		delete(s.held, v.MemberReleased.JobId)
	case *pb.Record_MemberRestart:
		s.Restarted++
		s.restart(v.MemberRestart)
	case *pb.Record_MemberStopped:
		s.Stopped++
		delete(s.held, v.MemberStopped.JobId)
	case *pb.Record_UnitEnded:
		e := v.UnitEnded
		k := groupKey(e.Queue, e.JobSet, e.Member.GetGroup())
		if s.ended[k] {
			s.bad("a unit of group %s ends, which has ended", k)
		}
		s.verdict(k, e.Verdict)
	case *pb.Record_GroupEnded:
		s.Ended++
		k := groupKey(v.GroupEnded.Queue, v.GroupEnded.JobSet, v.GroupEnded.Group)
		if s.ended[k] {
			s.bad("group %s ends twice", k)
		}
		s.ended[k] = true
	}
}

func (s *groupScan) starts(m *pb.MemberChange) {
	if k := groupKey(m.Queue, m.JobSet, m.Member.GetGroup()); s.ended[k] {
		s.bad("job %s of group %s is started, which has ended", m.JobId, k)
	}
}

func (s *groupScan) restart(m *pb.MemberChange) {
	s.starts(m)
	delete(s.held, m.JobId)
	if g := m.Member.GetGeneration(); g <= s.begun[m.JobId] {
		s.bad("job %s is restarted to generation %d after %d", m.JobId, g, s.begun[m.JobId])
	}
	s.begun[m.JobId] = m.Member.GetGeneration()
	s.stoppedRuns[Run{m.JobId, m.RunId}] = m.Member.GetGeneration()
}

func (s *groupScan) decision(d *pb.Decision) {
	if d.Member == nil {
		return
	}
	k := groupKey(d.Queue, d.JobSet, d.Member.Group)
	absorbed := d.Code == uint32(policy.GroupOver) || d.Code == uint32(policy.GroupRestart) && d.GroupVerdict == nil
	if generation, wasStopped := s.stoppedRuns[Run{d.JobId, d.RunId}]; wasStopped && !absorbed {
		s.bad("run %s of job %s is decided by itself, which the restart to generation %d told to stop", d.RunId, d.JobId, generation)
	}
	if s.ended[k] && d.Code != uint32(policy.GroupOver) {
		s.bad("run %s of job %s of group %s is decided by itself, which has ended", d.RunId, d.JobId, k)
	}
	if absorbed {
		s.Absorbed++
	}
	s.verdict(k, d.GroupVerdict)
}

// verdict checks that restarts are counted one by one, up to maxRestarts.
func (s *groupScan) verdict(group string, v *pb.GroupVerdict) {
	if v == nil {
		return
	}
	if used := v.RestartsUsed; used != s.used[group] && (used != s.used[group]+1 || used > v.MaxRestarts) {
		s.bad("group %s: restart %d of %d after %d", group, used, v.MaxRestarts, s.used[group])
	}
	s.used[group] = v.RestartsUsed
}
