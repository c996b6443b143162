package policylog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Guard is the author of the overrides that the guard makes (ADR 23); nobody else may have this name.
const Guard = "guard"

// Override is an operator's override with its author, time and reason.
type Override struct {
	policyfile.Override
	Author, Reason string
	Time           int64 // Unix nanoseconds
}

// about reports whether the second override takes the place of the first, or is it.
func (o *Override) about(other *Override) bool {
	return o.Queue == other.Queue && o.Node == other.Node && o.Category == other.Category && o.Subcategory == other.Subcategory && o.Kill == other.Kill
}

// OverridesChanged returns which overrides began with a change at a time, in Unix nanoseconds, and which ended before their own time.
func OverridesChanged(before, after []Override, at int64) (began, ended []Override) {
	for _, o := range after {
		if !o.Over(at) && !slices.Contains(before, o) {
			began = append(began, o)
		}
	}
	for _, o := range before {
		if !o.Over(at) && !slices.ContainsFunc(after, func(a Override) bool { return o.about(&a) }) {
			ended = append(ended, o)
		}
	}
	return began, ended
}

// Proposal is a generation as its writer proposes it.
type Proposal struct {
	Set       *policyfile.Set // without overrides
	Overrides []Override
	MadeOf    *uint64 // nil: unconditional
	Author    string
	Reason    string
	Request   string // identifies the change; "" for none
	Time      int64  // Unix nanoseconds
}

// Entry is an effective generation.
type Entry struct {
	Number         uint64
	Digest         [sha256.Size]byte // of the set with its overrides
	Overrides      []Override
	Author, Reason string
	Request        string
	Time           int64 // Unix nanoseconds

	content, base []byte
	packed        bool
}

var (
	// ErrUnusable reports that this program cannot use a generation of the policies log.
	ErrUnusable = errors.New("policy generation is unusable")
	// ErrSuperseded reports that a generation is not effective: another one was written after the one on which it is
	// based.
	ErrSuperseded = errors.New("policy generation was superseded by a concurrent change")
)

const (
	packFrom = 16 << 10 // minimum size in bytes of content that is compressed
	maxSet   = 64 << 20 // maximum bytes of a set, so that a small message cannot have a large cost
	// maxValues limits the values of a set; parsing needs about a hundred times a value's length in memory.
	maxValues = 4 << 20
	// maxMessage is the broker's limit of 5 MiB minus a margin.
	maxMessage = 4<<20 + 512<<10
)

// Encode returns the message that proposes a generation.
func Encode(p *Proposal) ([]byte, error) {
	set, err := withOverrides(p.Set, p.Overrides)
	if err != nil {
		return nil, err
	}
	content := set.Canonical()
	if n := len(content); n > maxSet {
		return nil, fmt.Errorf("the policies take %d MiB in total, above the limit of %d", n>>20, maxSet>>20)
	}
	if n := valuesIn(content); n > maxValues {
		return nil, fmt.Errorf("the policies contain %d values in total, above the limit of %d", n, maxValues)
	}
	d := set.Digest()
	m := &pb.PolicyGeneration{
		Digest: d[:], Content: content, MadeOf: p.MadeOf,
		Author: p.Author, Reason: p.Reason, Request: p.Request, Time: p.Time,
	}
	for _, b := range p.Overrides {
		m.Brakes = append(m.Brakes, &pb.Brake{
			Queue: b.Queue, Kill: b.Kill, PausedUntil: b.PausedUntil, Author: b.Author, Reason: b.Reason, Time: b.Time,
			Node: b.Node, AvoidedUntil: b.AvoidedUntil, TrustedUntil: b.TrustedUntil,
			Category: b.Category, Subcategory: b.Subcategory, HeldUntil: b.HeldUntil,
		})
	}
	if len(p.Overrides) > 0 {
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
		return nil, fmt.Errorf("the policies take %d KiB in total, compressed, above the limit of %d", len(b)>>10, maxMessage>>10)
	}
	return b, nil
}

// valuesIn returns a lower bound on the number of values in a JSON text, ignoring nesting.
func valuesIn(text []byte) int { return bytes.Count(text, []byte(",")) }

func withOverrides(set *policyfile.Set, overrides []Override) (*policyfile.Set, error) {
	if len(overrides) == 0 {
		return set, nil
	}
	plain := make([]policyfile.Override, len(overrides))
	for i := range overrides {
		plain[i] = overrides[i].Override
	}
	return set.WithOverrides(plain...)
}

// decode reads a message as the generation of that number, and returns the generation on which it is based.
func decode(payload []byte, number uint64, u *unpacker) (*Entry, *uint64, error) {
	var m pb.PolicyGeneration
	if err := proto.Unmarshal(payload, &m); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	e := &Entry{
		Number: number, Author: m.Author, Reason: m.Reason, Request: m.Request, Time: m.Time,
		content: m.Content, base: m.Unbraked, packed: m.Zstd,
	}
	for _, b := range m.Brakes {
		e.Overrides = append(e.Overrides, Override{policyfile.Override{
			Queue: b.Queue, Kill: b.Kill, PausedUntil: b.PausedUntil, Node: b.Node, AvoidedUntil: b.AvoidedUntil, TrustedUntil: b.TrustedUntil,
			Category: b.Category, Subcategory: b.Subcategory, HeldUntil: b.HeldUntil,
		}, b.Author, b.Reason, b.Time})
	}
	content, err := u.unpack(m.Content, m.Zstd)
	if err != nil {
		return nil, nil, err
	}
	e.Digest = sha256.Sum256(content)
	if string(e.Digest[:]) != string(m.Digest) {
		return nil, nil, fmt.Errorf("%w: its digest is %x, its content's %x", ErrUnusable, m.Digest, e.Digest)
	}
	return e, m.MadeOf, nil
}

// withoutText returns a copy that takes little memory.
func (e *Entry) withoutText() *Entry {
	short := *e
	short.content, short.base = nil, nil
	return &short
}

// unpacker decompresses texts, one after the other, in the same memory.
type unpacker struct {
	dec *zstd.Decoder
	out []byte
}

// unpack returns a text, until the next call.
func (u *unpacker) unpack(b []byte, packed bool) ([]byte, error) {
	if !packed {
		return b, nil
	}
	var err error
	if u.dec == nil {
		if u.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSet)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	if u.out, err = u.dec.DecodeAll(b, u.out[:0]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return u.out, nil
}

func (u *unpacker) close() {
	if u.dec != nil {
		u.dec.Close()
	}
}

// sets returns the set that decides, and the one without overrides. They reuse the parts that are the same in held.
func (e *Entry) sets(held *policyfile.Set) (set, base *policyfile.Set, err error) {
	set = held
	if held.Digest() != e.Digest {
		set, err = e.parse(e.content, held)
	}
	if err != nil || len(e.Overrides) == 0 {
		return set, set, err
	}
	base, err = e.parse(e.base, set)
	return set, base, err
}

func (e *Entry) parse(b []byte, held *policyfile.Set) (*policyfile.Set, error) {
	var u unpacker
	defer u.close()
	content, err := u.unpack(b, e.packed)
	if err != nil {
		return nil, err
	}
	if n := valuesIn(content); n > maxValues {
		return nil, fmt.Errorf("%w: it contains %d values, above the limit of %d", ErrUnusable, n, maxValues)
	}
	set, err := held.ParseCanonical(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return set, nil
}
