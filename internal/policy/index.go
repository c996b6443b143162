package policy

import "math/bits"

// index finds the rules of a policy that may match a failure, so that the cost of a decision hardly depends on the
// number of rules. It may return rules that do not match, but misses none that does: a matcher that it leaves out costs
// time, nothing else.
type index struct {
	conditions    facet[Condition]
	codes         facet[int32] // of In only
	categories    facet[string]
	subcategories facet[string]
	messages      facet[string] // by substrings, of which every matching message contains one
	pieces        map[[leastPiece]byte][]string
	begins        [256]bool // first bytes of the substrings
}

// ruleSet is a set of rules of one policy, by index.
type ruleSet []uint64

// mask is room for the ruleSet of any policy.
type mask [(MaxRules + 63) / 64]uint64

func (r ruleSet) add(rule int) { r[rule/64] |= 1 << (rule % 64) }

// next returns the first rule of the set at or after an index, -1 if there is none.
func (r ruleSet) next(from int) int {
	for i := from / 64; i < len(r); i++ {
		if rest := r[i] >> max(0, from-i*64); rest != 0 {
			return max(from, i*64) + bits.TrailingZeros64(rest)
		}
	}
	return -1
}

// join adds the rules of another set, which may be nil.
func (r ruleSet) join(other ruleSet) {
	for i, word := range other {
		r[i] |= word
	}
}

// meet keeps only the rules that the other set has too.
func (r ruleSet) meet(other ruleSet) {
	for i, word := range other {
		r[i] &= word
	}
}

// beyond reports whether the set has a rule that the other has not.
func (r ruleSet) beyond(other ruleSet) bool {
	for i, word := range other {
		if r[i]&^word != 0 {
			return true
		}
	}
	return false
}

// facet indexes the rules by one property of a failure: which rules accept which value.
type facet[V comparable] struct {
	whatever ruleSet // the rules that accept any value
	accept   map[V]ruleSet
}

// add adds a rule of a policy with that number of rules; no values: it accepts any.
func (x *facet[V]) add(rule, rules int, values []V) {
	words := (rules + 63) / 64
	if len(values) == 0 {
		if x.whatever == nil {
			x.whatever = make(ruleSet, words)
		}
		x.whatever.add(rule)
		return
	}
	if x.accept == nil {
		x.accept = make(map[V]ruleSet)
	}
	for _, v := range values {
		if x.accept[v] == nil {
			x.accept[v] = make(ruleSet, words)
		}
		x.accept[v].add(rule)
	}
}

// narrow keeps the rules that accept any value or one of the given values.
func (x *facet[V]) narrow(may ruleSet, values []V) {
	if x.accept == nil {
		return
	}
	var room mask
	got := ruleSet(room[:len(may)])
	copy(got, x.whatever)
	for _, v := range values {
		got.join(x.accept[v])
	}
	may.meet(got)
}

// find returns the rules that may match, in room.
func (x *index) find(f *Failure, rules int, room *mask) ruleSet {
	may := ruleSet(room[:(rules+63)/64])
	for i := range may {
		may[i] = 1<<min(64, rules-i*64) - 1
	}
	x.categories.narrow(may, []string{f.Category})
	x.subcategories.narrow(may, []string{f.Subcategory})
	x.narrowConditions(may, f)
	x.narrowCodes(may, f)
	x.narrowMessages(may, f)
	return may
}

func (x *index) narrowConditions(may ruleSet, f *Failure) {
	have := f.Conditions
	if f.PodOOM {
		have = have.With(OOMKilled)
	}
	for i := range f.Containers {
		if f.Containers[i].Reason == "OOMKilled" {
			have = have.With(OOMKilled)
		}
	}
	var room [LeaseExpired]Condition
	values := room[:0]
	for c := OOMKilled; c <= LeaseExpired; c++ {
		if have.Has(c) {
			values = append(values, c)
		}
	}
	x.conditions.narrow(may, values)
}

func (x *index) narrowCodes(may ruleSet, f *Failure) {
	var room [8]int32
	values := room[:0]
	for i := range f.Containers {
		values = append(values, f.Containers[i].ExitCode)
	}
	x.codes.narrow(may, values)
}

// narrowMessages searches the messages for the substrings, if that can exclude rules.
func (x *index) narrowMessages(may ruleSet, f *Failure) {
	if x.pieces == nil {
		return
	}
	var room mask
	got := ruleSet(room[:len(may)])
	copy(got, x.messages.whatever)
	if !may.beyond(got) {
		return
	}
	for i := range f.Containers {
		message := f.Containers[i].Message
		for ; len(message) >= leastPiece; message = message[1:] {
			if !x.begins[lower(message[0])] {
				continue
			}
			for _, piece := range x.pieces[[leastPiece]byte{lower(message[0]), lower(message[1]), lower(message[2])}] {
				if beginsWith(message, piece) {
					got.join(x.messages.accept[piece])
				}
			}
		}
	}
	may.meet(got)
}

func newIndex(rules []rule) index {
	var x index
	for i := range rules {
		m := &rules[i].Matchers
		conditions, _ := Find[Conditions](m)
		x.conditions.add(i, len(rules), conditions.list())
		codes, _ := Find[ExitCodes](m)
		if codes.NotIn {
			codes.Codes = nil
		}
		x.codes.add(i, len(rules), codes.Codes)
		categories, _ := Find[Categories](m)
		x.categories.add(i, len(rules), categories)
		subcategories, _ := Find[Subcategories](m)
		x.subcategories.add(i, len(rules), subcategories)
		var pieces []string
		if message, ok := Find[TerminationMessage](m); ok {
			pieces = message.pieces
		}
		for _, piece := range pieces {
			x.addPiece(piece)
		}
		x.messages.add(i, len(rules), pieces)
	}
	return x
}

func (x *index) addPiece(piece string) {
	if x.messages.accept[piece] != nil {
		return
	}
	if x.pieces == nil {
		x.pieces = make(map[[leastPiece]byte][]string)
	}
	key := [leastPiece]byte([]byte(piece))
	x.pieces[key] = append(x.pieces[key], piece)
	x.begins[piece[0]] = true
}
