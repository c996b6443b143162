package policylog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Brake is a policy.Brake with who put it on, and why.
type Brake struct {
	policyfile.Brake
	Author, Reason string
	Time           int64 // Unix nanoseconds
}

// Proposal is a generation as its writer wants it.
type Proposal struct {
	Set     *policyfile.Set // without brakes
	Brakes  []Brake
	MadeOf  *uint64 // nil: it counts whatever was before
	Author  string
	Reason  string
	Request string // a name for the change; "" for none
	Time    int64  // Unix nanoseconds
}

// Entry is a generation that counts.
type Entry struct {
	Number         uint64
	Digest         [sha256.Size]byte // of the set, with its brakes
	Brakes         []Brake
	Author, Reason string
	Request        string
	Time           int64 // Unix nanoseconds

	content, unbraked []byte
	packed            bool
}

var (
	// ErrUnusable says that a generation of the policies log cannot be used.
	ErrUnusable = errors.New("policy generation cannot be used")
	// ErrOutrun says that a generation does not count: another was written before
	// it, after what it was made of was read.
	ErrOutrun = errors.New("policy generation came too late")
)

const (
	packFrom = 16 << 10 // content of so many bytes is compressed
	maxSet   = 64 << 20 // bytes of a set, so that a small message cannot cost much
	// maxValues bounds the values of a set, each of which costs a hundred times its
	// length when the set is parsed.
	maxValues = 4 << 20
	// maxMessage is what is left of the broker's 5 MiB after a margin.
	maxMessage = 4<<20 + 512<<10
)

// Encode is the message that proposes a generation.
func Encode(p *Proposal) ([]byte, error) {
	set, err := braked(p.Set, p.Brakes)
	if err != nil {
		return nil, err
	}
	content := set.Canonical()
	if n := len(content); n > maxSet {
		return nil, fmt.Errorf("the policies take %d MiB in all: %d are the most", n>>20, maxSet>>20)
	}
	if n := valuesIn(content); n > maxValues {
		return nil, fmt.Errorf("the policies hold %d values in all: %d are the most", n, maxValues)
	}
	d := set.Digest()
	m := &pb.PolicyGeneration{
		Digest: d[:], Content: content, MadeOf: p.MadeOf,
		Author: p.Author, Reason: p.Reason, Request: p.Request, Time: p.Time,
	}
	for _, b := range p.Brakes {
		m.Brakes = append(m.Brakes, &pb.Brake{
			Queue: b.Queue, Kill: b.Kill, PausedUntil: b.PausedUntil, Author: b.Author, Reason: b.Reason, Time: b.Time,
		})
	}
	if len(p.Brakes) > 0 {
		m.Unbraked = p.Set.Canonical()
	}
	if len(m.Content) >= packFrom {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("compress policy generation: %w", err)
		}
		m.Zstd, m.Content = true, enc.EncodeAll(m.Content, nil)
		if len(m.Brakes) > 0 {
			m.Unbraked = enc.EncodeAll(m.Unbraked, nil)
		}
	}
	b, err := proto.Marshal(m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode policy generation: %w", err)
	case len(b) > maxMessage:
		return nil, fmt.Errorf("the policies take %d KiB in all, compressed: %d are the most", len(b)>>10, maxMessage>>10)
	}
	return b, nil
}

// valuesIn is at least how many values a JSON text holds, but for how deep it goes.
func valuesIn(text []byte) int { return bytes.Count(text, []byte(",")) }

func braked(set *policyfile.Set, brakes []Brake) (*policyfile.Set, error) {
	if len(brakes) == 0 {
		return set, nil
	}
	plain := make([]policyfile.Brake, len(brakes))
	for i := range brakes {
		plain[i] = brakes[i].Brake
	}
	return set.Braked(plain...)
}

// decode reads a message as the generation of that number, and what it was made of.
func decode(payload []byte, number uint64) (*Entry, *uint64, error) {
	var m pb.PolicyGeneration
	if err := proto.Unmarshal(payload, &m); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	e := &Entry{
		Number: number, Author: m.Author, Reason: m.Reason, Request: m.Request, Time: m.Time,
		content: m.Content, unbraked: m.Unbraked, packed: m.Zstd,
	}
	for _, b := range m.Brakes {
		e.Brakes = append(e.Brakes, Brake{policyfile.Brake{Queue: b.Queue, Kill: b.Kill, PausedUntil: b.PausedUntil}, b.Author, b.Reason, b.Time})
	}
	content, err := e.unpack(m.Content)
	if err != nil {
		return nil, nil, err
	}
	e.Digest = sha256.Sum256(content)
	if string(e.Digest[:]) != string(m.Digest) {
		return nil, nil, fmt.Errorf("%w: its digest is %x, its content's %x", ErrUnusable, m.Digest, e.Digest)
	}
	return e, m.MadeOf, nil
}

func (e *Entry) unpack(b []byte) ([]byte, error) {
	if !e.packed {
		return b, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSet))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer dec.Close()
	out, err := dec.DecodeAll(b, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return out, nil
}

// Set is the set that decides. Its error is an ErrUnusable.
func (e *Entry) Set() (*policyfile.Set, error) { return e.parse(e.content, policyfile.Empty()) }

// Unbraked is the set without its brakes. Its error is an ErrUnusable.
func (e *Entry) Unbraked() (*policyfile.Set, error) {
	if len(e.Brakes) == 0 {
		return e.Set()
	}
	return e.parse(e.unbraked, policyfile.Empty())
}

// sets returns Set and Unbraked. They take over what is the same in a set that is held.
func (e *Entry) sets(held *policyfile.Set) (set, unbraked *policyfile.Set, err error) {
	set, err = e.parse(e.content, held)
	if err != nil || len(e.Brakes) == 0 {
		return set, set, err
	}
	unbraked, err = e.parse(e.unbraked, set)
	return set, unbraked, err
}

func (e *Entry) parse(b []byte, held *policyfile.Set) (*policyfile.Set, error) {
	content, err := e.unpack(b)
	if err != nil {
		return nil, err
	}
	if n := valuesIn(content); n > maxValues {
		return nil, fmt.Errorf("%w: it holds %d values: %d are the most", ErrUnusable, n, maxValues)
	}
	set, err := held.ParseCanonical(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return set, nil
}
