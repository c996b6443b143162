package events

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
)

// TestMutated holds the two decoders together on messages that nobody would
// send. MUTATIONS is how many (200,000 unless told; a quarter with -short), SEED
// where they start from. Each message is a function of its seed and number
// alone: a failure prints both, and MESSAGE runs just that one.
func TestMutated(t *testing.T) {
	t.Parallel()
	n, seed, only := uint64(200_000), uint64(1), uint64(math.MaxUint64)
	if testing.Short() {
		n /= 4
	}
	for name, v := range map[string]*uint64{"MUTATIONS": &n, "SEED": &seed, "MESSAGE": &only} {
		if s := os.Getenv(name); s != "" {
			var err error
			if *v, err = strconv.ParseUint(s, 10, 64); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	var corpus [][]byte
	for _, name := range recordings {
		corpus = append(corpus, recording(t, name)...)
	}
	var corners [][]byte
	for _, tt := range rules {
		corners = append(corners, tt.payload)
	}

	var d Decoder
	seen := map[string]int{}
	from, to := uint64(0), n
	if only != math.MaxUint64 {
		from, to = only, only+1
	}
	for i := from; i < to; i++ {
		m := mutator{Rand: rand.New(rand.NewPCG(seed, i)), corpus: corpus, corners: corners}
		payload := m.payload()
		if diff := disagree(&d, payload); diff != "" {
			t.Fatalf("SEED=%d MESSAGE=%d: %s\npayload: %q", seed, i, diff, payload)
		}
		count(seen, &d, payload)
	}
	t.Logf("SEED=%d: %v", seed, seen)
	if only != math.MaxUint64 {
		return
	}
	// A run that only sees garbage, or none, proves nothing.
	for _, what := range []string{
		"readable", "NotProtobuf", "NoQueue", "NoEvents", "submit", "init", "gang", "group", "index", "states", "node", "error", "containers", "several events",
		"kind 0", "kind 1", "kind 2", "kind 3", "kind 4", "kind 5", "kind 6", "kind 7", "kind 8", "kind 9", "kind 10", "kind 11", "kind 12", "kind 13",
	} {
		if seen[what] < int(n/2000) {
			t.Errorf("%d of %d messages with %q: too few", seen[what], n, what)
		}
	}
}

// count notes what a message was good for.
func count(seen map[string]int, d *Decoder, payload []byte) {
	s, err := d.Decode(payload)
	seen[class(err)]++
	if err != nil {
		return
	}
	has := map[string]bool{"several events": len(s.Events) > 1}
	for _, ev := range s.Events {
		has["kind "+strconv.Itoa(int(ev.Kind))] = true
		has["states"] = has["states"] || ev.States != 0
		has["node"] = has["node"] || ev.Node != ""
		if ev.Submit != nil {
			has["submit"] = true
			has["init"] = has["init"] || ev.Submit.InitContainers != nil
			has["gang"] = has["gang"] || ev.Submit.GangID != ""
			has["group"] = has["group"] || ev.Submit.Group != ""
			has["index"] = has["index"] || ev.Submit.Index != ""
		}
		if ev.Error != nil {
			has["error"] = true
			has["containers"] = has["containers"] || ev.Error.Containers != nil
		}
	}
	for what, yes := range has {
		if yes {
			seen[what]++
		}
	}
}

// node is a field as it stands on the wire, and how it is to be written.
type node struct {
	num    protowire.Number
	typ    protowire.Type
	v      uint64 // of a varint
	data   []byte // the value of any other type, a group with its end
	fields *tree  // in place of data where the contract declares a message
	tagLen int    // bytes of the tag at least; as many of the length below: overlong varints
	lenLen int
	wrong  int // added to the length
}

// tree is the fields of a message.
type tree struct {
	desc  protoreflect.MessageDescriptor
	nodes []node
}

// parse reads a message that is well-formed at its own level.
func parse(desc protoreflect.MessageDescriptor, b []byte) (*tree, bool) {
	t := &tree{desc: desc}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || num > protowire.MaxValidNumber {
			return nil, false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return nil, false
		}
		x := node{num: num, typ: typ, data: b[:n]}
		b = b[n:]
		if typ == protowire.VarintType {
			x.v, _ = protowire.ConsumeVarint(x.data)
		}
		if typ == protowire.BytesType {
			x.data, _ = protowire.ConsumeBytes(x.data)
			if fd := desc.Fields().ByNumber(num); fd != nil && fd.Message() != nil {
				x.fields, _ = parse(fd.Message(), x.data)
			}
		}
		t.nodes = append(t.nodes, x)
	}
	return t, true
}

func (t *tree) appendTo(b []byte) []byte {
	for _, x := range t.nodes {
		b = append(b, overlong(protowire.EncodeTag(x.num, x.typ), x.tagLen)...)
		switch x.typ {
		case protowire.VarintType:
			b = append(b, overlong(x.v, x.lenLen)...)
		case protowire.BytesType:
			data := x.data
			if x.fields != nil {
				data = x.fields.appendTo(nil)
			}
			b = append(b, overlong(uint64(max(0, len(data)+x.wrong)), x.lenLen)...)
			b = append(b, data...)
		default:
			b = append(b, x.data...)
		}
	}
	return b
}

// all is the tree and every tree in it.
func (t *tree) all() []*tree {
	trees := []*tree{t}
	for _, x := range t.nodes {
		if x.fields != nil {
			trees = append(trees, x.fields.all()...)
		}
	}
	return trees
}

func (t *tree) clone() *tree {
	c := &tree{t.desc, append([]node(nil), t.nodes...)}
	for i := range c.nodes {
		if c.nodes[i].fields != nil {
			c.nodes[i].fields = c.nodes[i].fields.clone()
		}
	}
	return c
}

// mutator makes messages out of recorded ones and those of the rules.
type mutator struct {
	*rand.Rand
	corpus, corners [][]byte
}

// chance is true once in n times.
func (m *mutator) chance(n int) bool { return m.IntN(n) == 0 }

// payload is a message that was recorded or made up, changed in its fields and
// then, now and then, in its bytes.
func (m *mutator) payload() []byte {
	root := m.root()
	for range m.IntN(5) {
		m.mutate(root)
	}
	b := root.appendTo(nil)
	if m.chance(6) {
		b = append(b, m.root().appendTo(nil)...) // two that are read as one
	}
	if m.chance(4) {
		for range 1 + m.IntN(3) {
			b = m.damage(b)
		}
	}
	return b
}

func (m *mutator) root() *tree {
	desc := (*pb.EventSequence)(nil).ProtoReflect().Descriptor()
	if m.chance(3) {
		t := m.message(desc, 0)
		t.nodes = append(t.nodes, m.text(1), m.text(2))
		return t
	}
	for {
		if t, ok := parse(desc, m.known()); ok {
			return t
		}
	}
}

func (m *mutator) known() []byte {
	if m.chance(3) {
		return m.corners[m.IntN(len(m.corners))]
	}
	return m.corpus[m.IntN(len(m.corpus))]
}

// mutate changes a message somewhere.
func (m *mutator) mutate(root *tree) {
	trees := root.all()
	t := trees[m.IntN(len(trees))]
	if m.chance(3) { // the event level decides most, and is rare among many
		t = trees[min(len(trees)-1, 1+m.IntN(3))]
	}
	n := len(t.nodes)
	if n == 0 || m.chance(5) {
		m.insert(t, m.declared(t.desc, 0))
		return
	}
	i, j := m.IntN(n), m.IntN(n)
	x := &t.nodes[i]
	switch m.IntN(14) {
	case 0: // once more, elsewhere
		m.insert(t, m.copyOf(*x))
	case 1: // once more, with another between
		m.insert(t, m.declared(t.desc, 0))
		t.nodes = append(t.nodes, m.copyOf(t.nodes[i]))
	case 2:
		t.nodes = append(t.nodes[:i:i], t.nodes[i+1:]...)
	case 3:
		t.nodes[i], t.nodes[j] = t.nodes[j], t.nodes[i]
	case 4:
		m.Shuffle(n, func(i, j int) { t.nodes[i], t.nodes[j] = t.nodes[j], t.nodes[i] })
	case 5, 6:
		m.insert(t, m.unknown())
	case 7: // the same field of another type
		y := m.unknown()
		y.num = x.num
		m.insert(t, y)
	case 8:
		x.tagLen, x.lenLen = m.IntN(12), m.IntN(12)
		if m.chance(2) {
			x.tagLen = 0
		}
	case 9:
		x.wrong = m.IntN(7) - 3
	case 10: // halves, which merge to the whole
		if x.fields != nil && len(x.fields.nodes) > 0 {
			at := m.IntN(len(x.fields.nodes) + 1)
			y := *x
			y.fields = &tree{x.fields.desc, x.fields.nodes[at:]}
			x.fields.nodes = x.fields.nodes[:at:at]
			t.nodes = append(t.nodes, y)
		}
	case 11: // a relative's fields
		for _, other := range m.root().all() {
			if other.desc == t.desc && m.chance(2) {
				t.nodes = append(t.nodes, other.nodes...)
				break
			}
		}
	case 12:
		if x.typ == protowire.VarintType {
			x.v = m.number()
		} else if x.fields == nil && x.typ == protowire.BytesType {
			x.data = m.string()
		}
	case 13: // a message as its bytes, damaged
		if x.fields != nil {
			x.data, x.fields = m.damage(x.fields.appendTo(nil)), nil
		}
	}
}

func (m *mutator) insert(t *tree, x node) {
	i := m.IntN(len(t.nodes) + 1)
	t.nodes = append(t.nodes[:i:i], append([]node{x}, t.nodes[i:]...)...)
}

func (m *mutator) copyOf(x node) node {
	if x.fields != nil {
		x.fields = x.fields.clone()
		if m.chance(3) {
			m.mutate(x.fields)
		}
	}
	return x
}

// message is a message of what the contract declares.
func (m *mutator) message(desc protoreflect.MessageDescriptor, depth int) *tree {
	t := &tree{desc: desc}
	for range m.IntN(5) {
		if m.chance(12) {
			t.nodes = append(t.nodes, m.unknown())
		} else if desc.Fields().Len() > 0 {
			t.nodes = append(t.nodes, m.declared(desc, depth))
		}
	}
	return t
}

// declared is a field that the message declares.
func (m *mutator) declared(desc protoreflect.MessageDescriptor, depth int) node {
	fields := desc.Fields()
	if fields.Len() == 0 {
		return m.unknown()
	}
	fd := fields.Get(m.IntN(fields.Len()))
	x := node{num: fd.Number(), typ: protowire.BytesType}
	switch fd.Kind() {
	case protoreflect.MessageKind:
		if depth > 8 {
			return m.unknown()
		}
		x.fields = m.message(fd.Message(), depth+1)
	case protoreflect.StringKind:
		return m.text(fd.Number())
	default: // bools, enums and integers
		x.typ, x.v = protowire.VarintType, m.number()
		if fd.IsList() && m.chance(2) { // packed
			x.typ = protowire.BytesType
			for range m.IntN(4) {
				x.data = append(x.data, overlong(m.number(), m.IntN(6)*m.IntN(3))...)
			}
		}
	}
	return x
}

func (m *mutator) text(num protowire.Number) node {
	return node{num: num, typ: protowire.BytesType, data: m.string()}
}

func (m *mutator) string() []byte {
	if m.chance(30) {
		return [][]byte{{0xff}, []byte("a\xc3"), []byte("\xed\xa0\x80"), []byte("\xf4\x90\x80\x80"), []byte("\xc0\x80")}[m.IntN(5)]
	}
	words := append([]string{
		"", "a", "job", "run", "main", "é", "\U0001F680", "\x00", "true", "a rather long name, longer than 127 bytes: " + string(bytes.Repeat([]byte("x"), 100)),
	}, kept[:]...)
	return []byte(words[m.IntN(len(words))])
}

func (m *mutator) number() uint64 {
	if m.chance(2) {
		return m.Uint64N(4)
	}
	return m.Uint64() >> m.IntN(64)
}

// unknown is a field of any number and type, seldom a well-known one.
func (m *mutator) unknown() node {
	numbers := []protowire.Number{1, 2, 3, 4, 5, 14, 15, 16, 18, 20, 23, 99, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 2047, 2048, 19000, protowire.MaxValidNumber}
	x := node{num: numbers[m.IntN(len(numbers))]}
	if m.chance(40) {
		x.num = []protowire.Number{0, protowire.MaxValidNumber + 1, math.MaxInt32, -1}[m.IntN(4)]
	}
	switch x.typ = protowire.Type(m.IntN(6)); x.typ {
	case protowire.VarintType:
		x.v = m.number()
	case protowire.Fixed32Type:
		x.data = make([]byte, 4)
	case protowire.Fixed64Type:
		x.data = make([]byte, 8)
	case protowire.BytesType:
		x.data = m.string()
	case protowire.StartGroupType, protowire.EndGroupType:
		x.typ = protowire.StartGroupType
		x.data = m.group(x.num, 0)
	}
	if m.chance(60) {
		x.typ = protowire.Type(m.IntN(8)) // with a value that is not of it
	}
	return x
}

// group is what stands between the start of a group and behind its end.
func (m *mutator) group(num protowire.Number, depth int) []byte {
	if m.chance(300) {
		depth := 9_999 + m.IntN(4)
		return join(groups(depth), protowire.AppendTag(nil, num, protowire.EndGroupType))
	}
	t := tree{}
	for range m.IntN(3) {
		if depth < 4 && m.chance(3) {
			t.nodes = append(t.nodes, node{num: 7, typ: protowire.StartGroupType, data: m.group(7, depth+1)})
		} else {
			t.nodes = append(t.nodes, m.unknown())
		}
	}
	if m.chance(20) {
		num++
	}
	b := protowire.AppendTag(t.appendTo(nil), num, protowire.EndGroupType)
	if m.chance(30) {
		b = b[:len(b)-1]
	}
	return b
}

// damage changes bytes without regard to what they mean.
func (m *mutator) damage(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) == 0 {
		return []byte{byte(m.Uint32())}
	}
	i, j := m.IntN(len(b)), m.IntN(len(b))
	switch i, j := min(i, j), max(i, j); m.IntN(8) {
	case 0, 1:
		b[i] ^= 1 << m.IntN(8)
	case 2:
		b[i] = byte(m.Uint32())
	case 3:
		b = b[:j]
	case 4:
		b = b[j:]
	case 5:
		b = append(b[:i], b[min(len(b), i+1+m.IntN(4)):]...)
	case 6:
		b = append(b[:i:i], append([]byte{byte(m.Uint32())}, b[i:]...)...)
	case 7:
		other := m.known()
		b = append(b[:i:i], other[min(j, len(other)):]...)
	}
	return b
}
