package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/eventlog"
)

// Hash is a SHA-256.
type Hash [32]byte

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Link returns the hash of an envelope's bytes, as they were read.
func Link(envelope []byte) Hash { return sha256.Sum256(envelope) }

// Extend adds one record's bytes to a running hash: the SHA-256 of the previous hash
// and the bytes. The running hash starts at the zero hash.
func (h Hash) Extend(record []byte) Hash {
	var room [512]byte // keeps most records off the heap
	return sha256.Sum256(append(append(room[:0], h[:]...), record...))
}

// Envelope is one message of a partition of the decisions topic: the records for one
// batch of input.
type Envelope struct {
	Seq    uint64 // dense, from 1
	Link   Hash   // of the previous envelope; zero at seq 1
	Epoch  uint64 // of the owner's claim, from 1
	Owner  OwnerID
	InFrom eventlog.Position // exclusive; eventlog.Start: the beginning
	InTo   eventlog.Position // inclusive; equal to InFrom: no input, unless a HistoryAccepted moves it
	// InCount is the number of messages in (InFrom, InTo].
	InCount uint64
	Records [][]byte // each an encoded Record
}

// MaxEnvelopeBytes is the size that envelopes stay within, below Pulsar's limit of 5 MiB
// per message: an owner cuts them so far below it that one more parked message fits
// (softEnvelopeBytes in package evaluator). An input message with more records goes into one envelope.
const MaxEnvelopeBytes = 4_500 << 10

// Append appends the canonical encoding of the envelope. It ends with a checksum, so
// that a truncated or damaged envelope is not valid: such a message is ignored, and does
// not look as if a claim were missing.
func (e *Envelope) Append(b []byte) []byte {
	start := len(b)
	b = e.appendHead(b)
	for _, r := range e.Records {
		b = append(appendRecordHead(b, r), r...)
	}
	return appendSum(b, b[start:])
}

func (e *Envelope) appendHead(b []byte) []byte {
	w := wire{b: b}
	e.head(&w)
	return w.b
}

// head is the fields before the records.
func (e *Envelope) head(w *wire) {
	w.uint(1, &e.Seq)
	w.fixed(2, e.Link[:])
	w.uint(3, &e.Epoch)
	w.fixed(4, e.Owner[:])
	w.position(5, &e.InFrom)
	w.position(6, &e.InTo)
	w.uint(7, &e.InCount)
}

func appendRecordHead(b, r []byte) []byte {
	return protowire.AppendVarint(appendTag(b, 8, protowire.BytesType), uint64(len(r)))
}

func appendSum(b, of []byte) []byte { return appendUint(b, 9, uint64(crc32.Checksum(of, castagnoli))) }

// encoded reports whether b is what Append appends.
func (e *Envelope) encoded(b []byte) bool {
	var room [192]byte // a head takes less
	rest, ok := bytes.CutPrefix(b, e.appendHead(room[:0]))
	for i := 0; ok && i < len(e.Records); i++ {
		if rest, ok = bytes.CutPrefix(rest, appendRecordHead(room[:0], e.Records[i])); ok {
			rest, ok = bytes.CutPrefix(rest, e.Records[i])
		}
	}
	return ok && bytes.Equal(rest, appendSum(room[:0], b[:len(b)-len(rest)]))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// DecodeEnvelope decodes an envelope; its records share memory with b. It returns
// ErrMalformed for invalid bytes.
func DecodeEnvelope(b []byte) (*Envelope, error) {
	e := new(Envelope)
	if err := e.from(b); err != nil {
		return nil, err
	}
	return e, nil
}

// from decodes into an empty envelope.
func (e *Envelope) from(b []byte) error {
	e.InFrom, e.InTo = eventlog.Start, eventlog.Start
	var w wire
	w.read(b)
	e.head(&w)
	for w.take(8, protowire.BytesType) {
		e.Records = append(e.Records, w.bytes)
		w.next()
	}
	if w.take(9, protowire.VarintType) { // the checksum, which the one encoding must have
		w.next()
	}
	if err := w.done(); err != nil {
		return fmt.Errorf("envelope: %w", err)
	}
	if e.Seq == 0 || e.Epoch == 0 || e.InTo.Compare(e.InFrom) < 0 || (e.InCount == 0) != (e.InTo == e.InFrom) && !e.skips() {
		return fmt.Errorf("envelope: %w: seq %d of epoch %d covers %d messages from %v to %v", ErrMalformed, e.Seq, e.Epoch, e.InCount, e.InFrom, e.InTo)
	}
	if !e.encoded(b) {
		return fmt.Errorf("envelope: %w: not in the one encoding", ErrMalformed)
	}
	return nil
}

// Decode decodes the envelope's records. Activations must come first, and a claim or
// an accepted history must be the only record (protocol.md 4). Only the latter moves the
// input position without input.
func (e *Envelope) Decode() ([]Record, error) { return e.decode(e.Records) }

// decodeFront decodes the records before those that follow from input.
func (e *Envelope) decodeFront() ([]Record, error) {
	n := 0
	for n < len(e.Records) && isFront(e.Records[n]) {
		n++
	}
	return e.decode(e.Records[:n])
}

func (e *Envelope) decode(first [][]byte) ([]Record, error) {
	if len(first) == 0 {
		return nil, nil
	}
	records := make([]Record, len(first))
	front := true
	var d recordDecoder
	for i, raw := range first {
		r, err := d.decode(raw)
		if err != nil {
			return nil, fmt.Errorf("envelope %d: record %d: %w", e.Seq, i, err)
		}
		switch {
		case r.FromInput():
			front = false
			if e.InCount == 0 {
				return nil, fmt.Errorf("envelope %d: record %d: %w: answers no input", e.Seq, i, ErrMalformed)
			}
		case !front:
			return nil, fmt.Errorf("envelope %d: record %d: %w: not at the front", e.Seq, i, ErrMalformed)
		}
		if standsAlone(r) && (len(e.Records) != 1 || e.InCount != 0) {
			return nil, fmt.Errorf("envelope %d: %w: %T stands alone", e.Seq, ErrMalformed, r)
		}
		records[i] = r
	}
	if acceptsHistory(records) && !e.skips() {
		return nil, fmt.Errorf("envelope %d: %w: it accepts a history that is here", e.Seq, ErrMalformed)
	}
	return records, nil
}

// skips reports whether the envelope moves the input position without input.
func (e *Envelope) skips() bool {
	const tag = byte(fieldHistoryAccepted<<3) | byte(protowire.BytesType)
	return e.InCount == 0 && e.InTo != e.InFrom && len(e.Records) == 1 && len(e.Records[0]) > 0 && e.Records[0][0] == tag
}

func standsAlone(r Record) bool {
	switch r.(type) {
	case *OwnerClaim, *HistoryAccepted, *StateRebuilt:
		return true
	}
	return false
}

func acceptsHistory(records []Record) bool {
	if len(records) == 0 {
		return false
	}
	_, ok := records[0].(*HistoryAccepted)
	return ok
}
