package sim

import (
	"fmt"
	"strings"
)

// Faults is a set of kinds of faults.
type Faults uint32

// The kinds of faults.
const (
	Crashes     Faults = 1 << iota // processes end anywhere; what was not synced may be lost
	Pauses                         // processes stand still for long
	Moves                          // the placement moves, and several own a partition at once
	Fencing                        // taking a publisher fences the ones before
	LateSends                      // sends land late and out of order
	LostSends                      // sends never arrive, and no error is reported
	Duplicates                     // sends land twice
	FailedSends                    // sends fail, and may land all the same
	Lag                            // readers lag
	Transient                      // reading fails and works again
	OldStates                      // a store is lost; the newest copy is old, or there is none
	Policies                       // new policy generations, also such as cannot be used
	Strangers                      // garbage and old envelopes in the decision log
	UnknownTx                      // commits end with an unknown result
	Releases                       // ingesters do not wait for a slow chain
	Trims                          // retention takes the oldest events
	Cuts                           // a log loses messages
	Outages                        // a log cannot be read or written for long
	Losses                         // events are gone before their effect is stored, and an operator accepts it
	Growth                         // a partition is added, and job sets move to it
	Copies                         // ingesters publish copies of decisions to events
	allFaults   = 1<<iota - 1
)

// rare are the kinds that only one seed in four has.
const rare = Outages | Losses | Growth

var faultNames = [...]string{
	"crashes", "pauses", "moves", "fencing", "late sends", "lost sends", "duplicates", "failed sends", "lag", "transient errors",
	"old states", "policies", "strangers", "unknown commits", "releases", "trims", "cuts",
	"outages", "losses", "growth", "copies",
}

// Each calls visit for each kind in the set.
func (f Faults) Each(visit func(one Faults)) {
	for one := Faults(1); one < allFaults; one <<= 1 {
		if f&one != 0 {
			visit(one)
		}
	}
}

// String names the kinds.
func (f Faults) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("[%s]", strings.Join(names, ", "))
}
