package events

import (
	"bytes"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// What payloads are built of: a field of a given number and wire type.

func str(num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), s)
}

func msg(num protowire.Number, fields ...[]byte) []byte {
	return str(num, string(bytes.Join(fields, nil)))
}

func vint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func fixed(num protowire.Number, typ protowire.Type) []byte {
	n := map[protowire.Type]int{protowire.Fixed32Type: 4, protowire.Fixed64Type: 8}[typ]
	return append(protowire.AppendTag(nil, num, typ), make([]byte, n)...)
}

// group is a group of fields; its end says end.
func group(num, end protowire.Number, fields ...[]byte) []byte {
	b := append(protowire.AppendTag(nil, num, protowire.StartGroupType), bytes.Join(fields, nil)...)
	return protowire.AppendTag(b, end, protowire.EndGroupType)
}

// groups is n groups, one in another.
func groups(n int) []byte {
	return append(bytes.Repeat(protowire.AppendTag(nil, 30, protowire.StartGroupType), n),
		bytes.Repeat(protowire.AppendTag(nil, 30, protowire.EndGroupType), n)...)
}

func tag(num protowire.Number, typ protowire.Type, rest ...byte) []byte {
	return append(protowire.AppendTag(nil, num, typ), rest...)
}

// overlong is v in n bytes.
func overlong(v uint64, n int) []byte {
	b := protowire.AppendVarint(nil, v)
	for len(b) < n {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// sequence is a payload with one event for each of the given bytes.
func sequence(queue, set string, events ...[]byte) []byte {
	b := append(str(1, queue), str(2, set)...)
	for _, ev := range events {
		b = append(b, msg(5, ev)...)
	}
	return b
}

// one is a payload with one event of these fields.
func one(fields ...[]byte) []byte { return sequence("q", "s", join(fields...)) }

func annotated(key, value string) []byte { return msg(4, msg(5, str(1, key), str(2, value))) }
func podSpec(fields ...[]byte) []byte    { return msg(5, msg(2, msg(1, fields...))) }
func failed(errors ...[]byte) []byte     { return msg(14, str(4, "j"), str(5, "r"), join(errors...)) }

// terminalError is a terminal Error with these fields.
func terminalError(fields ...[]byte) []byte { return msg(3, vint(1, 1), join(fields...)) }

const bad = "\xff\xfe" // no UTF-8

const gang = "armadaproject.io/gangId"

// rules are payloads at the corners of the contract, and what is in them.
var rules = []struct {
	name    string
	payload []byte
	want    string // as summary prints it
}{
	// The sequence.
	{"nothing", nil, "NoQueue"},
	{"no queue", join(str(2, "s"), msg(5)), "NoQueue"},
	{"empty queue", sequence("", "s", nil), "NoQueue"},
	{"no job set", join(str(1, "q"), msg(5)), "NoJobSet"},
	{"no events", sequence("q", "s"), "NoEvents"},
	{"malformed counts before missing", join(str(2, "s"), tag(5, 2, 9)), "NotProtobuf"},
	{"malformed inside counts before missing", join(str(2, "s"), msg(5, tag(18, 2, 9))), "NotProtobuf"},
	{"last queue wins", join(sequence("q", "s", nil), str(1, "")), "NoQueue"},
	{"two sequences are one", join(sequence("q", "s", msg(8, str(3, "a"))), sequence("p", "t", msg(8, str(3, "b")))), "5 job=a | 5 job=b"},
	{"queue is no UTF-8", sequence(bad, "s", nil), "NotProtobuf"},
	{"earlier queue is no UTF-8", join(str(1, bad), sequence("q", "s", nil)), "NotProtobuf"},
	{"job set is no UTF-8", sequence("q", bad, nil), "NotProtobuf"},
	{"queue cut in a rune", sequence("é"[:1], "s", nil), "NotProtobuf"},
	{"user and groups are not declared", join(sequence("q", "s", nil), str(3, bad), str(4, bad)), "0"},
	{"queue of another type", join(vint(1, 1), sequence("q", "s", nil), fixed(1, protowire.Fixed32Type), vint(2, 0), vint(5, 7)), "0"},

	// The wire.
	{"number 0", join(one(), []byte{0x02, 0}), "NotProtobuf"},
	{"number 0 in a varint", join(one(), []byte{0x00, 0}), "NotProtobuf"},
	{"greatest number", join(one(), str(protowire.MaxValidNumber, "x")), "0"},
	{"number too great", join(one(), []byte{0x82, 0x80, 0x80, 0x80, 0x10, 0}), "NotProtobuf"},
	{"number too great by far", join(one(), overlong(1<<63|2, 10), []byte{0}), "NotProtobuf"},
	{"overlong tag", join(one(), overlong(5<<3|2, 5), []byte{0}), "0 | 0"},
	{"longest tag", join(one(), overlong(5<<3|2, 10), []byte{0}), "0 | 0"},
	{"tag too long", join(one(), overlong(5<<3|2, 11), []byte{0}), "NotProtobuf"},
	{"unfinished tag", join(one(), []byte{0xaa}), "NotProtobuf"},
	{"tag and no more", join(one(), []byte{0x2a}), "NotProtobuf"},
	{"varint and no more", join(one(), tag(99, 0)), "NotProtobuf"},
	{"unfinished varint", join(one(), tag(99, 0, 0x80)), "NotProtobuf"},
	{"longest varint", join(one(), tag(99, 0), overlong(1, 10)), "0"},
	{"varint too long", join(one(), tag(99, 0), overlong(1, 11)), "NotProtobuf"},
	{"varint of 65 bits", join(one(), tag(99, 0), bytes.Repeat([]byte{0xff}, 9), []byte{2}), "NotProtobuf"},
	{"overlong length", join(one(), tag(5, 2), overlong(0, 10)), "0 | 0"},
	{"length too long", join(one(), tag(5, 2), overlong(0, 11)), "NotProtobuf"},
	{"length past the end", join(one(), tag(5, 2, 1)), "NotProtobuf"},
	{"length negative as an int", join(one(), tag(5, 2), overlong(1<<63, 10)), "NotProtobuf"},
	{"greatest length", join(one(), tag(5, 2), bytes.Repeat([]byte{0xff}, 9), []byte{1}), "NotProtobuf"},
	{"fixed", join(one(), fixed(99, protowire.Fixed32Type), fixed(99, protowire.Fixed64Type)), "0"},
	{"short fixed32", join(one(), tag(99, 5, 1, 2, 3)), "NotProtobuf"},
	{"short fixed64", join(one(), tag(99, 1, 1, 2, 3, 4, 5, 6, 7)), "NotProtobuf"},
	{"type 6", join(one(), tag(99, 6, 0)), "NotProtobuf"},
	{"type 7", join(one(), tag(99, 7, 0)), "NotProtobuf"},
	{"type 6 of a declared field", join(one(), tag(5, 6, 0)), "NotProtobuf"},
	{"group", join(one(), group(99, 99, vint(1, 1), str(2, bad), group(5, 5))), "0"},
	{"group in the place of events", join(group(5, 5), one()), "0"},
	{"group ends as another", join(one(), group(99, 98)), "NotProtobuf"},
	{"inner group ends as another", join(one(), group(99, 99, group(1, 2))), "NotProtobuf"},
	{"group does not end", join(one(), tag(99, 3)), "NotProtobuf"},
	{"group of malformed", join(one(), group(99, 99, tag(1, 2, 9))), "NotProtobuf"},
	{"group with number 0", join(one(), group(99, 99, []byte{0, 0})), "NotProtobuf"},
	{"group with a number that only groups allow", join(one(), group(99, 99, overlong(1<<29<<3, 5), []byte{0})), "0"},
	{"group with a number too great", join(one(), group(99, 99, overlong(1<<31<<3, 5), []byte{0})), "NotProtobuf"},
	{"end of no group", join(one(), tag(99, 4)), "NotProtobuf"},
	{"end of no group in an event", one(tag(5, 4)), "NotProtobuf"},
	{"group ends outside its message", join(str(1, "q"), str(2, "s"), msg(5, tag(30, 3)), tag(30, 4)), "NotProtobuf"},
	{"deepest groups", join(one(), groups(10_001)), "0"},
	{"groups too deep", join(one(), groups(10_002)), "NotProtobuf"},
	{"deepest groups, deep inside", one(failed(terminalError(msg(8, msg(5, groups(10_001)))))), "11 job=j run=r reason=1 containers=[{ 0  }]"},

	// The event.
	{"event without anything", one(), "0"},
	{"event nobody knows", one(msg(77, str(1, bad))), "0"},
	{"created", one(msg(18, vint(1, 5), vint(2, 6))), "0 created=5.6"},
	{"created and zero", one(msg(18)), "0 created=0.0"},
	{"created merges", one(msg(18, vint(1, 5), vint(2, 6)), msg(8, str(3, "j")), msg(18, vint(2, 7))), "5 job=j created=5.7"},
	{"created stays when the member changes", one(msg(8), msg(18, vint(1, 5)), msg(7)), "4 created=5.0"},
	{"created of another type", one(vint(18, 5), fixed(18, protowire.Fixed64Type)), "0"},
	{"seconds of another type", one(msg(18, fixed(1, protowire.Fixed64Type), str(2, "x"))), "0 created=0.0"},
	{"malformed created", one(msg(18, tag(1, 0))), "NotProtobuf"},
	{"negative seconds", one(msg(18, vint(1, 1<<64-1))), "0 created=-1.0"},
	{"nanos lose their high bits", one(msg(18, vint(2, 1<<32|9))), "0 created=0.9"},
	{"nanos turn negative", one(msg(18, vint(2, 1<<31))), "0 created=0.-2147483648"},
	{"last member wins", one(msg(8, str(3, "a")), msg(7, str(3, "b"))), "4 job=b"},
	{"last member wins whole", one(msg(10, str(4, "n"), str(10, "a"), str(11, "r")), msg(8)), "5"},
	{"same member merges", one(msg(10, str(4, "n"), str(10, "a")), msg(10, str(11, "r"), str(10, "b"))), "7 job=b run=r node=n"},
	{"other member between", one(msg(10, str(4, "n"), str(10, "a")), msg(8), msg(10, str(11, "r"))), "7 run=r"},
	{"passed over member between", one(msg(10, str(4, "n"), str(10, "a")), msg(22), msg(10, str(11, "r"))), "7 run=r"},
	{"unknown member between", one(msg(10, str(4, "n"), str(10, "a")), msg(15), msg(10, str(11, "r"))), "7 job=a run=r node=n"},
	{"member of another type between", one(msg(10, str(4, "n")), vint(8, 1), group(8, 8), msg(10, str(11, "r"))), "7 run=r node=n"},
	{"submit resets", one(msg(1, str(14, "j"), annotated(gang, "g"), podSpec(msg(20))), msg(8), msg(1, podSpec(msg(20, str(1, "i"))))), "1 submit init=[i]"},
	{"error resets", one(failed(terminalError(str(16, "c"))), msg(8), failed(msg(3))), "11 job=j run=r"},
	{"passed over kinds have no job", one(msg(4, str(3, "j"))), "0"},
	{"passed over kinds have no job either", one(msg(22, str(4, "j"))), "0"},
	{"passed over kinds are checked", one(msg(4, str(3, bad))), "NotProtobuf"},
	{"passed over kinds are checked too", one(msg(22, str(4, bad))), "NotProtobuf"},
	{"passed over kinds are walked", one(msg(22, tag(9, 2, 9))), "NotProtobuf"},
	{"terminated is ours", one(msg(1001, str(1, "j"), str(2, "r"))), "13 job=j run=r"},
	{"a republished job is a submit", one(msg(1002, str(14, "j"), annotated(gang, "g"))), "1 job=j submit gang=g"},
	{"a republished job and a submit are two members", one(msg(1, str(14, "j"), annotated(gang, "g")), msg(1002, str(14, "k"))), "1 job=k submit"},
	{"a known run", one(msg(1003, str(1, "j"), str(2, "r"), str(3, "n"))), "14 job=j run=r node=n"},
	{"an ended run", one(msg(1004, str(1, "j"), str(2, "r"), str(3, bad))), "15 job=j run=r node=" + bad},
	{"a known run with its stage, which the job database alone reads", one(msg(1003, str(1, "j"), str(2, "r"), str(3, "n"), vint(4, 2))), "14 job=j run=r node=n"},
	{"a known run's stage is no varint", one(msg(1003, str(1, "j"), str(2, "r"), str(4, "2"))), "14 job=j run=r"},
	{"known run and ended run are two members", one(msg(1003, str(1, "j"), str(3, "n")), msg(1004, str(2, "r"))), "15 run=r"},
	{"a known run's job is no UTF-8", one(msg(1003, str(1, bad))), "NotProtobuf"},
	{"an order", one(msg(1005, str(1, "j"), str(2, "r"), str(3, "o"), vint(4, 2), str(5, "eve"), str(6, "why"))), "16 job=j run=r order=o action=2 author=eve reason=why"},
	{"an order in two parts", one(msg(1005, str(1, "j"), str(3, "o"), vint(4, 1)), msg(1005, str(2, "r"), vint(4, 1<<32+2))), "16 job=j run=r order=o action=2"},
	{"an order's fields of another type", one(msg(1005, vint(1, 7), str(4, "1"), vint(6, 1))), "16 order="},
	{"an order and a known run are two members", one(msg(1005, str(1, "j"), str(3, "o")), msg(1003, str(2, "r"))), "14 run=r"},
	{"an order's author is no UTF-8", one(msg(1005, str(5, bad))), "NotProtobuf"},
	{"an order's reason is no UTF-8", one(msg(1005, str(6, bad))), "NotProtobuf"},
	{"numbers around ours", one(msg(1000, str(1, bad)), msg(1006, str(1, bad))), "0"},

	// The ids.
	{"cancel", one(msg(5, str(2, bad), str(3, "j"))), "2 job=j"},
	{"assigned", one(msg(11, str(4, "j"), str(5, "r"))), "8 job=j run=r"},
	{"succeeded", one(msg(13, str(4, "j"), str(5, "r"))), "10 job=j run=r"},
	{"preempted", one(msg(19, str(5, "j"), str(6, "r"), str(7, bad))), "12 job=j run=r"},
	{"last id wins, empty too", one(msg(13, str(4, "j"), str(5, "r"), str(4, ""), str(5, "x"))), "10 run=x"},
	{"id of another type", one(msg(13, str(4, "j"), vint(4, 1), vint(5, 1), str(5, "r"))), "10 job=j run=r"},
	{"job is no UTF-8", one(msg(13, str(4, bad))), "NotProtobuf"},
	{"run is no UTF-8", one(msg(13, str(5, bad))), "NotProtobuf"},
	{"earlier run is no UTF-8", one(msg(13, str(5, bad), str(5, "r"))), "NotProtobuf"},
	{"forgotten run is no UTF-8", one(msg(13, str(5, bad)), msg(8)), "NotProtobuf"},
	{"surrogate is no UTF-8", one(msg(8, str(3, "\xed\xa0\x80"))), "NotProtobuf"},
	{"long rune is UTF-8", one(msg(8, str(3, "job-\U0001F680"))), "5 job=job-\U0001F680"},
	{"nul is UTF-8", one(msg(8, str(3, "\x00"))), "5 job=\x00"},
	{"node may be no UTF-8", one(msg(10, str(3, bad), str(4, bad), str(12, bad))), "7 node=" + bad},
	{"long id", one(msg(8, str(3, strings.Repeat("j", 300)))), "5 job=" + strings.Repeat("j", 300)},

	// CancelJobSet.
	{"no states", one(msg(6)), "3"},
	{"states", one(msg(6, vint(1, 2), vint(1, 1))), "3 states=6"},
	{"queued is zero", one(msg(6, vint(1, 0))), "3 states=1"},
	{"packed states", one(msg(6, str(1, "\x00\x02"))), "3 states=5"},
	{"packed and not", one(msg(6, str(1, "\x00"), vint(1, 1), str(1, ""), str(1, "\x02"))), "3 states=7"},
	{"foreign states", one(msg(6, vint(1, 3), vint(1, 1<<64-1))), "3 states=8"},
	{"state loses its high bits", one(msg(6, vint(1, 1<<32|1))), "3 states=2"},
	{"packed overlong", one(msg(6, msg(1, overlong(1, 10), []byte{2}))), "3 states=6"},
	{"packed unfinished", one(msg(6, str(1, "\x01\x80"))), "NotProtobuf"},
	{"packed too long", one(msg(6, msg(1, overlong(1, 11)))), "NotProtobuf"},
	{"states merge", one(msg(6, vint(1, 0)), msg(6, vint(1, 2))), "3 states=5"},
	{"states reset", one(msg(6, vint(1, 0)), msg(8), msg(6, vint(1, 2))), "3 states=4"},
	{"states of another type", one(msg(6, fixed(1, protowire.Fixed32Type), group(1, 1))), "3"},

	// SubmitJob.
	{"submit", one(msg(1, str(14, "j"))), "1 job=j submit"},
	{"annotations", one(msg(1, annotated(gang, "g"), annotated("armadaproject.io/gangCardinality", "2"), annotated("armadaproject.io/failFast", "true"),
		annotated("armadaproject.io/retry-policy", "a, b"), annotated("other", bad), annotated("", "x"))), "1 submit policies=a, b failfast=true gang=g cardinality=2"},
	{
		"annotations of a group", one(msg(1, annotated("refloat.github.io/group", "g"), annotated("refloat.github.io/group-policy", "p"), annotated("refloat.github.io/part", "w"),
			annotated("refloat.github.io/replica", "007"), annotated("refloat.github.io/index", "x"), annotated("armadaproject.io/group", "other"))),
		"1 submit group=g group-policy=p part=w replica=007 index=x",
	},
	{"last annotation wins", one(msg(1, annotated(gang, "a"), annotated(gang, "b"))), "1 submit gang=b"},
	{"last annotation wins, empty too", one(msg(1, annotated(gang, "a"), msg(4, msg(5, str(1, gang))))), "1 submit"},
	{"annotation value first", one(msg(1, msg(4, msg(5, str(2, "g"), str(1, gang))))), "1 submit gang=g"},
	{"annotation key twice", one(msg(1, msg(4, msg(5, str(1, gang), str(2, "g"), str(1, "x"))))), "1 submit"},
	{"annotation value twice", one(msg(1, msg(4, msg(5, str(2, "a"), str(1, gang), str(2, "b"))))), "1 submit gang=b"},
	{"annotation key of another type", one(msg(1, msg(4, msg(5, str(1, gang), vint(1, 7), str(2, "g"), vint(2, 1))))), "1 submit gang=g"},
	{"annotation value of no UTF-8", one(msg(1, annotated(gang, bad))), "1 submit gang=" + bad},
	{"annotation with more fields", one(msg(1, msg(4, msg(5, str(1, gang), str(2, "g"), str(3, "x"), group(4, 4))))), "1 submit gang=g"},
	{"annotation of another type", one(msg(1, msg(4, vint(5, 1), group(5, 5)))), "1 submit"},
	{"malformed annotation", one(msg(1, msg(4, msg(5, tag(1, 2, 9))))), "NotProtobuf"},
	{"annotation with number 0", one(msg(1, msg(4, msg(5, []byte{2, 0})))), "NotProtobuf"},
	{"annotation with a number too great", one(msg(1, msg(4, msg(5, overlong(1<<29<<3, 5), []byte{0})))), "NotProtobuf"},
	{"annotation ends a group", one(msg(1, msg(4, msg(5, tag(1, 4))))), "NotProtobuf"},
	{"pod spec", one(msg(1, podSpec(vint(4, 30), msg(20, str(1, "a")), msg(20), msg(20, str(1, "b"), str(1, "c"))))), "1 submit init=[a  c] grace=30"},
	{"pod spec merges at every level", one(msg(1, podSpec(vint(4, 30)), podSpec(msg(20, str(1, "a"))),
		msg(5, msg(2), msg(2, msg(1, msg(20, str(1, "b"))), msg(1, vint(4, 9)))))), "1 submit init=[a b] grace=9"},
	{"submits merge", one(msg(1, str(14, "j"), podSpec(msg(20, str(1, "a"))), annotated(gang, "g")), msg(1, podSpec(msg(20, str(1, "b"))))), "1 job=j submit gang=g init=[a b]"},
	{"two submits", sequence("q", "s", msg(1, podSpec(msg(20, str(1, "a")))), msg(1, podSpec(msg(20, str(1, "b")), msg(20)))), "1 submit init=[a] | 1 submit init=[b ]"},
	{"negative grace", one(msg(1, podSpec(vint(4, 1<<64-1)))), "1 submit grace=-1"},
	{"grace of another type", one(msg(1, podSpec(str(4, "x"), fixed(4, protowire.Fixed64Type)))), "1 submit"},
	{"main object of another type", one(msg(1, vint(5, 1), msg(5, vint(2, 1), msg(2, vint(1, 1))))), "1 submit"},
	{"malformed pod spec", one(msg(1, podSpec(tag(1, 2, 9)))), "NotProtobuf"},
	{"malformed init container", one(msg(1, podSpec(msg(20, tag(1, 2, 9))))), "NotProtobuf"},
	{"containers are not declared", one(msg(1, podSpec(msg(2, tag(1, 2, 9))))), "1 submit"},
	{"other objects are not declared", one(msg(1, msg(5, msg(3, tag(1, 2, 9)))), msg(1, msg(6, tag(1, 2, 9)))), "1 submit"},
	{"priority of any type", one(msg(1, vint(3, 1), str(3, "x"), fixed(3, protowire.Fixed64Type))), "1 submit"},

	// JobRunRunning.
	{"node of a pod", one(msg(12, str(4, "j"), str(5, "r"), msg(3, msg(2, str(1, "n"))))), "9 job=j run=r node=n"},
	{"first node that has a name", one(msg(12, msg(3), msg(3, msg(3)), msg(3, msg(2)), msg(3, msg(2, str(1, "n"))), msg(3, msg(2, str(1, "m"))))), "9 node=n"},
	{"pod merges", one(msg(12, msg(3, msg(2, str(1, "n")), msg(2)))), "9 node=n"},
	{"last name of a pod wins", one(msg(12, msg(3, msg(2, str(1, "n")), msg(2, str(1, ""))), msg(3, msg(2, str(1, "m"))))), "9 node=m"},
	{"ingress wins over pod", one(msg(12, msg(3, msg(2, str(1, "n")), msg(3)))), "9"},
	{"pod after ingress is new", one(msg(12, msg(3, msg(2, str(1, "n")), msg(3), msg(2)))), "9"},
	{"resources of two merge", one(msg(12, msg(3, msg(2, str(1, "n")))), msg(12, msg(3, msg(2, str(1, "m"))))), "9 node=n"},
	{"malformed ingress", one(msg(12, msg(3, msg(3, tag(1, 2, 9))))), "NotProtobuf"},
	{"malformed pod", one(msg(12, msg(3, msg(2, tag(1, 2, 9))))), "NotProtobuf"},
	{"resource of another type", one(msg(12, vint(3, 1), msg(3, vint(2, 1), vint(3, 1)))), "9"},

	// Errors.
	{"error", one(failed(terminalError(str(16, "c"), str(17, bad)))), "11 job=j run=r reason=0 category=c subcategory=" + bad},
	{"not terminal", one(failed(msg(3, str(16, "c")))), "11 job=j run=r"},
	{"terminal says false", one(failed(msg(3, vint(1, 1), vint(1, 0)))), "11 job=j run=r"},
	{"terminal says it late", one(failed(msg(3, vint(1, 0), str(16, "c"), vint(1, 7)))), "11 job=j run=r reason=0 category=c"},
	{"terminal is any bit", one(failed(msg(3, vint(1, 1<<40)))), "11 job=j run=r reason=0"},
	{"terminal of another type", one(failed(msg(3, str(1, "\x01"), fixed(1, protowire.Fixed32Type)))), "11 job=j run=r"},
	{"first terminal", one(failed(msg(3, str(16, "a")), terminalError(str(16, "b")), terminalError(str(16, "c")))), "11 job=j run=r reason=0 category=b"},
	{"first terminal of two that merge", one(failed(msg(3)), failed(terminalError(str(16, "b"))), failed(terminalError(str(16, "c")))), "11 job=j run=r reason=0 category=b"},
	{"job errors", one(msg(9, msg(2, vint(1, 1), msg(13, str(1, bad))), str(3, "j"))), "6 job=j reason=5"},
	{
		"reasons", sequence("q", "s", failed(terminalError(msg(6))), failed(terminalError(msg(8))), failed(terminalError(msg(9))), failed(terminalError(msg(11))), failed(terminalError(msg(13))),
			failed(terminalError(msg(2))), failed(terminalError(msg(3))), failed(terminalError(msg(4))), failed(terminalError(msg(7))), failed(terminalError(msg(12))), failed(terminalError(msg(14)))),
		"11 job=j run=r reason=3 | 11 job=j run=r reason=1 | 11 job=j run=r reason=2 | 11 job=j run=r reason=4 | 11 job=j run=r reason=5" +
			strings.Repeat(" | 11 job=j run=r reason=0", 6),
	},
	{"last reason wins whole", one(failed(terminalError(msg(8, str(3, "n"), vint(6, 2), msg(5, vint(2, 1))), msg(9)))), "11 job=j run=r reason=2"},
	{"last reason wins, an idle one too", one(failed(terminalError(msg(8, str(3, "n"), msg(5, vint(2, 1))), msg(2)))), "11 job=j run=r reason=0"},
	{
		"reasons merge", one(failed(terminalError(msg(8, str(3, "n"), msg(5, vint(2, 1))), str(16, "c"), msg(8, vint(6, 2), msg(5, vint(2, 3)))))),
		"11 job=j run=r reason=1 category=c kubernetes=2 pod=n containers=[{ 1  } { 3  }]",
	},
	{"other reason between", one(failed(terminalError(msg(8, str(3, "n"), msg(5, vint(2, 1))), msg(14), msg(8, msg(5, vint(2, 3)))))), "11 job=j run=r reason=1 containers=[{ 3  }]"},
	{"unknown reason between", one(failed(terminalError(msg(8, str(3, "n")), msg(5), msg(15), msg(8, vint(6, 1))))), "11 job=j run=r reason=1 kubernetes=1 pod=n"},
	{"lease returned", one(failed(terminalError(msg(9, str(2, bad), vint(4, 1))))), "11 job=j run=r reason=2 attempted=true"},
	{"lease returned merges", one(failed(terminalError(msg(9, vint(4, 1)), msg(9)))), "11 job=j run=r reason=2 attempted=true"},
	{"lease returned, last wins", one(failed(terminalError(msg(9, vint(4, 1), vint(4, 0))))), "11 job=j run=r reason=2"},
	{"kubernetes reason unknown", one(failed(terminalError(msg(8, vint(6, 9))))), "11 job=j run=r reason=1 kubernetes=9"},
	{"kubernetes reason negative", one(failed(terminalError(msg(8, vint(6, 1<<64-1))))), "11 job=j run=r reason=1 kubernetes=-1"},
	{"kubernetes reason loses its high bits", one(failed(terminalError(msg(8, vint(6, 1<<32|2))))), "11 job=j run=r reason=1 kubernetes=2"},
	{"kubernetes reason packed is another type", one(failed(terminalError(msg(8, str(6, "\x02"))))), "11 job=j run=r reason=1"},
	{
		"container", one(failed(terminalError(msg(8, msg(5, msg(1, str(2, bad), str(3, "main")), vint(2, 137), str(3, bad), str(4, "OOMKilled")))))),
		"11 job=j run=r reason=1 containers=[{main 137 OOMKilled " + bad + "}]",
	},
	{"container name merges", one(failed(terminalError(msg(8, msg(5, msg(1, str(3, "a")), msg(1, str(2, "x")), msg(1, str(3, "b"))))))), "11 job=j run=r reason=1 containers=[{b 0  }]"},
	{"negative exit code", one(failed(terminalError(msg(8, msg(5, vint(2, 1<<64-1)))))), "11 job=j run=r reason=1 containers=[{ -1  }]"},
	{"exit code of another type", one(failed(terminalError(msg(8, msg(5, vint(2, 3), str(2, "x")))))), "11 job=j run=r reason=1 containers=[{ 3  }]"},
	{"malformed annotation of a container", one(failed(terminalError(msg(8, msg(5, msg(1, msg(5, tag(1, 2, 9)))))))), "NotProtobuf"},
	{"malformed error that is not terminal", one(failed(msg(3, msg(8, tag(3, 2, 9))))), "NotProtobuf"},
	{"malformed error after the first", one(failed(terminalError(), terminalError(msg(8, msg(5, tag(2, 0)))))), "NotProtobuf"},
	{"malformed reason that was replaced", one(failed(terminalError(msg(8, tag(3, 2, 9)), msg(9)))), "NotProtobuf"},
	{"malformed reason of which nothing is read", one(failed(msg(3, msg(4, tag(1, 2, 9))))), "NotProtobuf"},
	{"malformed container error as a reason", one(failed(msg(3, msg(3, msg(1, msg(5, tag(1, 2, 9))))))), "NotProtobuf"},
	{"message of a reason is text", one(failed(msg(3, msg(7, str(1, bad)), msg(12, str(1, bad)), msg(14, str(1, bad))))), "11 job=j run=r"},
	{"retired reasons are not declared", one(failed(msg(3, str(5, "\x0a\x09"), str(10, "\x0a\x09"), str(15, "\x0a\x09")))), "11 job=j run=r"},
	{
		"errors of two events", sequence("q", "s", failed(terminalError(msg(8, msg(5, vint(2, 1))))), failed(msg(3, msg(8, msg(5, vint(2, 2))))), failed(terminalError(msg(8, msg(5, vint(2, 3)))))),
		"11 job=j run=r reason=1 containers=[{ 1  }] | 11 job=j run=r | 11 job=j run=r reason=1 containers=[{ 3  }]",
	},
}
