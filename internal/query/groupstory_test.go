package query

import (
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// TestMemberRows: members that went alike are one row. Of those that did not, rows become fewer, but no member is lost, and the one
// that failed comes first in its row.
func TestMemberRows(t *testing.T) {
	t.Parallel()
	const members, failed = 10_000, 17
	for _, tt := range []struct {
		name  string
		state func(i int) jobdb.MemberState
		rows  int
	}{
		{"alike", func(int) jobdb.MemberState { return jobdb.MemberStopped }, 3},
		{"no two alike", func(i int) jobdb.MemberState { return jobdb.MemberState(1 + i%3) }, maxMemberRows},
	} {
		u := Unit{}
		for i := range members {
			j := &jobdb.Job{JobID: "j", Member: jobdb.Membership{Part: "main", Index: uint32(i), State: tt.state(i)}}
			if i == failed {
				j.Member.State = jobdb.MemberUnitFail
			}
			u.Members = append(u.Members, j)
		}
		g := Group{Parts: []Part{{Name: "main", Units: []Unit{u}}}}
		rows := g.rows(pastOf(&jobdb.Group{Shape: policy.Shape{}}, g.Parts))
		sum, shown := uint32(0), 0
		for i := range rows {
			counted := 0
			for k, s := range rows[i].Generations[0].States {
				counted += s.Count
				if s.Key == jobdb.MemberUnitFail.String() && k == 0 && s.Count == 1 {
					shown++
				}
			}
			if counted != int(rows[i].Members) {
				t.Errorf("%s: row %s of %d members has the states of %d", tt.name, rows[i].Name, rows[i].Members, counted)
			}
			sum += rows[i].Members
		}
		if sum != members || shown != 1 || len(rows) > tt.rows || len(rows) < tt.rows*9/10 {
			t.Errorf("%s: %d members in %d rows, of which the one that failed comes first in %d", tt.name, sum, len(rows), shown)
		}
	}
}
