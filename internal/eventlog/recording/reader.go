package recording

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// maxLineBytes limits one line, so that a damaged file does not exhaust memory.
const maxLineBytes = 128 << 20

// Reader reads the entries of a recording, one after the other.
type Reader struct {
	path   string
	name   string
	file   io.Closer // nil if it belongs to the caller
	zip    *gzip.Reader
	in     *bufio.Reader
	number int // number of the line read last
	last   map[int]eventlog.Position
	err    error // permanent
}

// Open opens a recording file.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	r, err := NewReader(f, path)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

// NewReader reads a recording from in. Errors name the path, and the recording
// is named after it.
func NewReader(in io.Reader, path string) (*Reader, error) {
	name := Name(path)
	if name == "" {
		return nil, fmt.Errorf("open recording: cannot derive a name from %q", path)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%s is not a recording: it is not compressed with gzip (%w); `refloatctl record` writes recordings", path, err)
	}
	return &Reader{
		path: path, name: name, zip: z, in: bufio.NewReaderSize(z, 1<<20),
		last: make(map[int]eventlog.Position),
	}, nil
}

// Next returns the next entry, or io.EOF at the end of the file.
func (r *Reader) Next() (Entry, error) {
	if r.err != nil {
		return Entry{}, r.err
	}
	e, err := r.next()
	if errors.Is(err, io.EOF) {
		r.err = io.EOF
	} else if err != nil {
		r.err = fmt.Errorf("%s:%d: %w", r.path, r.number, err)
	}
	return e, r.err
}

func (r *Reader) next() (Entry, error) {
	text, err := r.line()
	if err != nil {
		return Entry{}, err
	}
	e, err := parseLine(text)
	if err != nil {
		return Entry{}, err
	}
	m := &e.Message
	m.Origin = eventlog.Origin{Recording: r.name, Position: m.Position, Publish: m.Publish}
	if last, ok := r.last[e.Partition]; ok && m.Position.Compare(last) <= 0 {
		return Entry{}, fmt.Errorf("position %v follows %v in partition %d: positions must increase", m.Position, last, e.Partition)
	}
	r.last[e.Partition] = m.Position
	return e, nil
}

// line reads the next line. The result is valid until the next call.
func (r *Reader) line() ([]byte, error) {
	r.number++
	text, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(text)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLineBytes {
			text, err = r.in.ReadSlice('\n')
			long = append(long, text...)
		}
		if len(long) > maxLineBytes {
			return nil, fmt.Errorf("the line is longer than %d bytes", maxLineBytes)
		}
		text = long
	}
	if err == io.EOF && len(text) > 0 {
		return nil, errors.New("the last line is incomplete: the file is truncated")
	}
	if err != nil {
		return nil, err
	}
	return text[:len(text)-1], nil
}

func parseLine(text []byte) (Entry, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
			return Entry{}, fmt.Errorf("%s: want a %s, not a %s", wrong.Field, wrong.Type.Kind(), wrong.Value)
		}
		return Entry{}, errors.New("this line is not a message of a recording: want an object in JSON")
	}
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"partition", l.Partition == nil},
		{"ledger", l.Ledger == nil},
		{"entry", l.Entry == nil},
		{"publish_time", l.PublishTime == nil},
		{"payload", l.Payload == nil},
	} {
		if f.missing {
			return Entry{}, fmt.Errorf("%q is missing", f.name)
		}
	}
	if *l.Partition < 0 {
		return Entry{}, fmt.Errorf("partition %d is negative", *l.Partition)
	}
	publish, err := parseTime(*l.PublishTime)
	if err != nil {
		return Entry{}, err
	}
	payload, err := parsePayload(*l.Payload)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Partition: int(*l.Partition),
		Producer:  l.Producer,
		Message: eventlog.Message{
			Position:   eventlog.Position{Ledger: *l.Ledger, Entry: *l.Entry, Batch: l.Batch},
			Publish:    publish,
			Key:        l.Key,
			Payload:    payload,
			Properties: sortedProperties(l.Properties),
		},
	}, nil
}

// parseTime returns Unix nanoseconds.
func parseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, fmt.Errorf("publish_time %q: want a time such as 2026-12-01T06:00:00Z", s)
	}
	if t.Before(time.Unix(0, math.MinInt64)) || t.After(time.Unix(0, math.MaxInt64)) {
		return 0, fmt.Errorf("publish_time %s is out of range", s)
	}
	return t.UnixNano(), nil
}

func parsePayload(s string) ([]byte, error) {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 { // which the decoder ignores
		return nil, fmt.Errorf("payload: %w", base64.CorruptInputError(i))
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return payload, nil
}

func sortedProperties(m map[string]string) []eventlog.Property {
	var ps []eventlog.Property
	for k, v := range m {
		ps = append(ps, eventlog.Property{Key: k, Value: v})
	}
	slices.SortFunc(ps, func(a, b eventlog.Property) int { return cmp.Compare(a.Key, b.Key) })
	return ps
}

// Close closes the file that Open opened.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = fmt.Errorf("recording %s: %w", r.path, os.ErrClosed)
	}
	err := r.zip.Close()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

// ReadFile reads a whole recording.
func ReadFile(path string) ([]Entry, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	var entries []Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
}
