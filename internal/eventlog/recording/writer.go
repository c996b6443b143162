package recording

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/eventlog"
)

// Writer writes a recording.
type Writer struct {
	zip  *gzip.Writer
	out  *json.Encoder
	last map[int]eventlog.Position
	err  error // permanent
}

// NewWriter writes a recording to out. It is complete when Close has returned
// nil; out stays open.
func NewWriter(out io.Writer) *Writer {
	z := gzip.NewWriter(out)
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(false)
	return &Writer{zip: z, out: enc, last: make(map[int]eventlog.Position)}
}

// Write writes an entry with its message's origin position and publish time, if it has
// them: so the recording of a log that was fed from a recording equals that recording. It
// rejects what a Reader would reject or not return unchanged.
func (w *Writer) Write(e Entry) error {
	if w.err != nil {
		return w.err
	}
	m := &e.Message
	at := m.OriginPosition()
	if err := w.check(e, at); err != nil {
		return fmt.Errorf("record message %v of partition %d: %w", at, e.Partition, err)
	}
	var properties map[string]string
	for _, p := range m.Properties {
		if properties == nil {
			properties = make(map[string]string, len(m.Properties))
		}
		properties[p.Key] = p.Value
	}
	partition := int32(e.Partition)
	publish := time.Unix(0, m.OriginPublish()).UTC().Format(time.RFC3339Nano)
	payload := base64.StdEncoding.EncodeToString(m.Payload)
	if err := w.out.Encode(line{
		Partition: &partition, Ledger: &at.Ledger, Entry: &at.Entry, Batch: at.Batch,
		Key: m.Key, PublishTime: &publish, Producer: e.Producer, Properties: properties, Payload: &payload,
	}); err != nil {
		w.err = fmt.Errorf("write recording: %w", err)
		return w.err
	}
	w.last[e.Partition] = at
	return nil
}

func (w *Writer) check(e Entry, at eventlog.Position) error {
	if e.Partition < 0 || e.Partition > math.MaxInt32 {
		return errors.New("the partition is out of range")
	}
	if last, ok := w.last[e.Partition]; ok && at.Compare(last) <= 0 {
		return fmt.Errorf("its position is not after %v, the last one", last)
	}
	if !utf8.ValidString(e.Message.Key) || !utf8.ValidString(e.Producer) {
		return errors.New("its key or producer is not UTF-8")
	}
	seen := make(map[string]bool, len(e.Message.Properties))
	for _, p := range e.Message.Properties {
		if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
			return errors.New("a property is not UTF-8")
		}
		if seen[p.Key] {
			return fmt.Errorf("duplicate property %q", p.Key)
		}
		seen[p.Key] = true
	}
	return nil
}

// Close writes the end of the recording.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("write recording: already closed")
	if err := w.zip.Close(); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}
