package projection

import (
	"encoding/binary"
	"math"
	"strings"
)

// The first byte of a key is the kind of its record.
const (
	metaKey   = 'm'
	jobKey    = 'j'
	runKey    = 'r'
	setKey    = 's'
	forgetKey = 'x'
	groupKey  = 'g'

	refusedKey = 'y' // of groups of which something was refused: their prefixes
	recheckKey = 'z' // there if they are to be looked at again

	budgetKey = 'b' // the accounts of budgets, by name
)

// Clear deletes all records of a State.
func Clear(b Batch) error {
	for _, first := range []byte{jobKey, runKey, setKey, forgetKey, groupKey, refusedKey, recheckKey, budgetKey} {
		if err := b.DeleteRange([]byte{first}, []byte{first + 1}); err != nil {
			return err
		}
	}
	return nil
}

func appendJobKey(b []byte, job string) []byte { return append(append(b, jobKey), job...) }

// appendEscaped appends a string that something follows: 00 becomes 00 FF, and 00 01
// ends it, so that keys sort like the strings and no string is a prefix of another.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		b = append(b, s[i])
		if s[i] == 0 {
			b = append(b, 0xFF)
		}
	}
	return append(b, 0, 1)
}

// cutEscaped is the inverse of appendEscaped: it also returns what follows.
func cutEscaped(b string) (s, rest string, ok bool) {
	var out []byte
	for {
		at := strings.IndexByte(b, 0)
		if at < 0 || at+1 == len(b) {
			return "", "", false
		}
		out = append(out, b[:at]...)
		switch b[at+1] {
		case 1:
			return string(out), b[at+2:], true
		case 0xFF:
			out, b = append(out, 0), b[at+2:]
		default:
			return "", "", false
		}
	}
}

func appendRunPrefix(b []byte, job string) []byte { return appendEscaped(append(b, runKey), job) }

func appendSetPrefix(b []byte, queue, set string) []byte {
	return appendEscaped(appendEscaped(append(b, setKey), queue), set)
}

// appendForgetKey appends a key that sorts by weight and base, also for negative bases.
func appendForgetKey(b []byte, t term, job string) []byte {
	return append(appendForgetBound(b, t), job...)
}

func appendForgetBound(b []byte, t term) []byte {
	b = append(b, forgetKey, t.weight)
	return binary.BigEndian.AppendUint64(b, uint64(t.base)^(1<<63))
}

// splitForgetKey is the inverse of appendForgetKey.
func splitForgetKey(key []byte) (term, string, bool) {
	if len(key) < 10 || key[0] != forgetKey {
		return term{}, "", false
	}
	base := int64(binary.BigEndian.Uint64(key[2:10]) ^ (1 << 63))
	return term{weight: key[1], base: base}, string(key[10:]), true
}

// after returns the first key that is greater than every key with the prefix. The
// prefixes used here end in a byte less than FF.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	return end
}

func subtractSaturating(a, b int64) int64 {
	if b > 0 && a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}
