package policyfile

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/policy"
)

// A leaf is a scalar of the files.
type leaf interface {
	form() (what, tags string)  // what may be written, and as which YAML types it is parsed
	parse(written string) fault // sets the value; returns the zero fault on success
	text() string               // the single canonical form of the value
}

// fault says what is wrong with a value, and how to fix it.
type fault struct{ code, message, fix string }

type (
	limit    uint32 // a number of retries
	exitCode int32
	version  uint32 // of the canonical encoding
)

// maxLimit limits every limit, so that no count can overflow.
const maxLimit = 1_000_000

func (l *limit) form() (string, string) { return "a whole number", "!!int" }
func (l *limit) text() string           { return strconv.FormatUint(uint64(*l), 10) }
func (l *limit) parse(s string) fault {
	n, f := parseInt(s, 0, maxLimit)
	*l = limit(n)
	return f
}

func (e *exitCode) form() (string, string) { return "a whole number", "!!int" }
func (e *exitCode) text() string           { return strconv.FormatInt(int64(*e), 10) }
func (e *exitCode) parse(s string) fault {
	n, f := parseInt(s, -1<<31, 1<<31-1)
	*e = exitCode(n)
	return f
}

func (v *version) form() (string, string) { return "1", "!!int" }
func (v *version) text() string           { return strconv.FormatUint(uint64(*v), 10) }
func (v *version) parse(s string) fault {
	n, f := parseInt(s, 1, 1)
	*v = version(n)
	return f
}

// parseInt parses a plain decimal number.
func parseInt(s string, least, most int64) (int64, fault) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch written := strings.TrimPrefix(s, "-"); {
	case strings.Trim(written, "0123456789") != "" || written == "" || written != "0" && written[0] == '0' || s == "-0":
		return 0, fault{codeWrongType, "not a plain decimal number", "write it with decimal digits only"}
	case err != nil || n < least || n > most:
		return 0, fault{codeOutOfRange, fmt.Sprintf("not between %d and %d", least, most), "choose a number in this range"}
	}
	return n, fault{}
}

type (
	factor   uint32 // a multiplier, in thousandths
	fraction uint32 // 0 to 1, in thousandths
)

func (f *factor) form() (string, string) {
	return "a number with at most three decimals", "!!int !!float"
}
func (f *factor) text() string { return Thousandths(uint32(*f)) }
func (f *factor) parse(s string) fault {
	n, bad := parseThousandths(s, 1, 1_000_000)
	*f = factor(n)
	return bad
}

func (f *fraction) form() (string, string) {
	return "a number with at most three decimals", "!!int !!float"
}
func (f *fraction) text() string { return Thousandths(uint32(*f)) }
func (f *fraction) parse(s string) fault {
	n, bad := parseThousandths(s, 0, 1)
	*f = fraction(n)
	return bad
}

func parseThousandths(s string, least, most uint64) (uint64, fault) {
	outside := fault{codeOutOfRange, fmt.Sprintf("not between %d and %d", least, most), "choose a number in this range"}
	whole, decimals, _ := strings.Cut(s, ".")
	switch {
	case strings.HasPrefix(s, "-") && len(s) > 1:
		return 0, outside
	case whole == "" || strings.Trim(whole+decimals, "0123456789") != "" || strings.HasSuffix(s, "."):
		return 0, fault{codeBadDecimal, "not a plain decimal number", "write a number such as 1.5"}
	case len(decimals) > 3:
		return 0, fault{codeBadDecimal, "more than three decimals", "round it"}
	}
	n, err := strconv.ParseUint(whole+(decimals + "000")[:3], 10, 64)
	if err != nil || n < least*1000 || n > most*1000 {
		return 0, outside
	}
	return n, fault{}
}

// Thousandths writes a number of thousandths as files do: 1500 as 1.5.
func Thousandths(n uint32) string {
	s := fmt.Sprintf("%d.%03d", n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// duration is a number of whole milliseconds.
type duration int64

func (d duration) duration() time.Duration { return time.Duration(d) * time.Millisecond }

// time returns the duration for the engine, nil if it is not set.
func (d *duration) time() *time.Duration {
	if d == nil {
		return nil
	}
	t := d.duration()
	return &t
}

func (d *duration) form() (string, string) { return `a duration with a unit, such as "10s"`, "!!str" }
func (d *duration) text() string           { return strconv.FormatInt(int64(*d), 10) + "ms" }

func (d *duration) parse(s string) fault {
	bad := func(message string) fault {
		return fault{codeBadDuration, message, `write a duration of whole milliseconds with units, such as "500ms", "10s" or "1h30m"`}
	}
	if strings.HasPrefix(s, "-") {
		return bad("negative duration")
	}
	total := new(big.Rat)
	for rest := s; rest != ""; {
		number := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789."))]
		rest = rest[len(number):]
		unit := rest[:len(rest)-len(strings.TrimLeft(rest, "hmsuµn"))]
		rest = rest[len(unit):]
		each := millisOf(unit)
		part, ok := new(big.Rat).SetString(number)
		if len(number) > 20 || !ok || each == nil {
			return bad("not a duration with units")
		}
		total.Add(total, part.Mul(part, each))
	}
	switch {
	case s == "":
		return bad("empty duration")
	case !total.IsInt():
		return bad("not a whole number of milliseconds")
	case !total.Num().IsInt64() || total.Num().Int64() > maxMillis:
		return bad("too long")
	}
	*d = duration(total.Num().Int64())
	return fault{}
}

// maxMillis is the longest duration of the files: about 100 years.
const maxMillis = 100 * 366 * 24 * 3600 * 1000

// millisOf returns the number of milliseconds of a unit, or nil if it is unknown.
func millisOf(unit string) *big.Rat {
	switch unit {
	case "h":
		return big.NewRat(3_600_000, 1)
	case "m":
		return big.NewRat(60_000, 1)
	case "s":
		return big.NewRat(1000, 1)
	case "ms":
		return big.NewRat(1, 1)
	case "us", "µs":
		return big.NewRat(1, 1000)
	case "ns":
		return big.NewRat(1, 1_000_000)
	}
	return nil
}

// instant is a time in Unix nanoseconds.
type instant int64

func (t *instant) form() (string, string) {
	return "a time such as 2026-12-01T06:00:00Z", "!!str !!timestamp"
}
func (t *instant) text() string { return time.Unix(0, int64(*t)).UTC().Format(time.RFC3339Nano) }
func (t *instant) parse(s string) fault {
	var at time.Time
	if err := at.UnmarshalText([]byte(s)); err != nil || at.Year() < 1970 || at.Year() > 2200 {
		return fault{codeBadTime, "not an RFC 3339 time", "write a time such as 2026-12-01T06:00:00Z"}
	}
	*t = instant(at.UnixNano())
	return fault{}
}

type (
	plain      string // any text
	label      string // compared with a fact of a failure
	policyName string
	ruleName   string
	queueName  string
)

func (p *plain) form() (string, string) { return "a string in quotes", "!!str" }
func (p *plain) text() string           { return string(*p) }
func (p *plain) parse(s string) fault   { *p = plain(s); return printable(s, 1024) }

func (l *label) form() (string, string) { return "a string in quotes", "!!str" }
func (l *label) text() string           { return string(*l) }
func (l *label) parse(s string) fault   { *l = label(s); return printable(s, 253) }

func (n *policyName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *policyName) text() string           { return string(*n) }
func (n *policyName) parse(s string) fault   { *n = policyName(s); return goodName(s) }

func (n *ruleName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *ruleName) text() string           { return string(*n) }
func (n *ruleName) parse(s string) fault {
	*n = ruleName(s)
	if s == policy.DefaultRule {
		return fault{codeReservedName, `"default" is reserved: defaultAction is counted under it`, "choose another name"}
	}
	return goodName(s)
}

func (n *queueName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *queueName) text() string           { return string(*n) }
func (n *queueName) parse(s string) fault {
	*n = queueName(s)
	if strings.Contains(s, " ") {
		return fault{codeBadName, "a space in a queue's name", "use the queue's name in Armada"}
	}
	return printable(s, 253)
}

type nodeName string

func (n *nodeName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *nodeName) text() string           { return string(*n) }
func (n *nodeName) parse(s string) fault {
	*n = nodeName(s)
	if strings.Contains(s, " ") {
		return fault{codeBadName, "a space in a node's name", "use the node's name in Kubernetes"}
	}
	return printable(s, 253)
}

// goodName applies Armada's rule for names: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$, ≤ 63.
func goodName(s string) fault {
	if s == "" || len(s) > 63 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || s[0] == '-' || s[len(s)-1] == '-' {
		return fault{codeBadName, "not a valid name", "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends"}
	}
	return fault{}
}

// Visible says whether a name has no characters that do not show or that reorder others: two names that look the same
// must be the same.
func Visible(name string) bool { return invisible(name) == (fault{}) }

func invisible(s string) fault {
	if i := strings.IndexFunc(s, func(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fault{codeBadText, fmt.Sprintf("an invisible character (%U)", r), "remove it"}
	}
	return fault{}
}

// printable rejects text that is empty, too long, or could corrupt a terminal or a log line.
func printable(s string, longest int) fault {
	switch {
	case s == "":
		return fault{codeEmpty, "empty", "omit the field or give it a value"}
	case len(s) > longest:
		return fault{codeOutOfRange, fmt.Sprintf("longer than %d bytes", longest), "shorten it"}
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 || r == 0xfeff }):
		return fault{codeBadText, "a control character", "remove it"}
	}
	return fault{}
}
