package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
)

// Names of files and directories.
const (
	manifestName = "manifest.json"
	digestName   = manifestName + ".sha256"

	eventsDir    = "events"
	decisionsDir = "decisions"
	policiesDir  = "policies"
)

const formatVersion = 1

// Manifest describes one range of an archive.
type Manifest struct {
	Format  int       `json:"format"`
	Range   int       `json:"range"` // from 1
	Created time.Time `json:"created"`
	Source  Names     `json:"source"`
	// Previous is the SHA-256 of the manifest of the range before; empty in the first one.
	Previous   string       `json:"previousManifestSha256,omitempty"`
	Partitions int          `json:"partitions"` // of the source
	Policies   PolicyRange  `json:"policies"`
	Chains     []ChainRange `json:"chains"` // by partition; partitions without news are omitted
	Files      []File       `json:"files"`
}

// Names are the names of the topics that were copied, each with a slash.
type Names struct {
	Events    string `json:"events"`
	Decisions string `json:"decisions"`
	Policies  string `json:"policies"`
}

// PolicyRange is a range of the policies log. Its positions are exclusive and inclusive.
type PolicyRange struct {
	After    string `json:"after"`
	To       string `json:"to"`
	Messages uint64 `json:"messages"`
}

// ChainRange is a range of one partition's chain, with the events that it covers.
type ChainRange struct {
	Partition   int      `json:"partition"`
	Begin       Boundary `json:"begin"`
	End         Boundary `json:"end"`
	Envelopes   uint64   `json:"envelopes"`
	Ignored     uint64   `json:"ignored"` // messages of the decision log that no reader accepts
	Events      uint64   `json:"events"`  // messages covered
	Decisions   uint64   `json:"decisions"`
	Semantics   []uint32 `json:"semanticsActivated"`
	Generations []uint64 `json:"generationsActivated"`
	// EventsMissing says why the events are incomplete; empty: they are complete.
	EventsMissing string `json:"eventsMissing,omitempty"`
}

// Boundary is the end of an envelope in a chain, and everything that a reader must know to
// continue there.
type Boundary struct {
	Envelope  uint64 `json:"envelope"`     // sequence number; 0: before the first
	Link      string `json:"link"`         // its hash, which the next envelope names
	Epoch     uint64 `json:"epoch"`        // of the last claim
	Owner     string `json:"owner"`        // of that claim
	Events    string `json:"eventsTo"`     // position up to which events are covered
	Decisions string `json:"decisionsTo"`  // position of the envelope
	Running   string `json:"runningHash"`  // over all records from input so far
	Decided   uint64 `json:"lastDecision"` // number of the last decision
	// Semantics and Generation are in force.
	Semantics  uint32 `json:"semantics"`
	Generation uint64 `json:"generation"`
}

// File is a file of a range. Its path has slashes.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// beginning is the boundary before the first envelope.
func beginning() Boundary {
	return newBoundary(follow.Beginning, chain.Hash{})
}

func newBoundary(at follow.Positions, running chain.Hash) Boundary {
	return Boundary{
		Envelope: at.Chain.Seq, Link: at.Chain.Link.String(), Epoch: at.Chain.Epoch, Owner: hex.EncodeToString(at.Chain.Owner[:]),
		Events: at.Chain.InTo.String(), Decisions: at.Decisions.String(), Running: running.String(),
	}
}

// positions are those of a reader at the boundary, with the running hash there.
func (b *Boundary) positions() (at follow.Positions, running chain.Hash, err error) {
	at.Chain.Seq, at.Chain.Epoch = b.Envelope, b.Epoch
	var e [5]error
	e[0] = hexTo(at.Chain.Link[:], b.Link)
	e[1] = hexTo(at.Chain.Owner[:], b.Owner)
	e[2] = hexTo(running[:], b.Running)
	at.Chain.InTo, e[3] = eventlog.ParsePosition(b.Events)
	at.Decisions, e[4] = eventlog.ParsePosition(b.Decisions)
	return at, running, errors.Join(e[:]...)
}

func hexTo(dst []byte, text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(dst) {
		return fmt.Errorf("%q is not %d bytes in hex", text, len(dst))
	}
	copy(dst, b)
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// digestFile is the content of the file beside a manifest.
func digestFile(manifest []byte) []byte {
	return []byte(digest(manifest) + "  " + manifestName + "\n")
}

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	return append(b, '\n'), err
}

// decodeManifest accepts only the one encoding: what a program cannot read it must not
// confirm.
func decodeManifest(b []byte) (*Manifest, error) {
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	if m.Format != formatVersion {
		return nil, fmt.Errorf("it has format %d, this program knows %d: use a newer one", m.Format, formatVersion)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, b) {
		return nil, errors.Join(errors.New("it is not in the form in which manifests are written"), err)
	}
	for i := range m.Chains {
		c := &m.Chains[i]
		if c.Partition < 0 || c.Partition >= m.Partitions || i > 0 && c.Partition <= m.Chains[i-1].Partition {
			return nil, fmt.Errorf("its chains are not in order: partition %d of %d", c.Partition, m.Partitions)
		}
		_, _, e1 := c.Begin.positions()
		_, _, e2 := c.End.positions()
		if err := errors.Join(e1, e2); err != nil {
			return nil, fmt.Errorf("partition %d: %w", c.Partition, err)
		}
	}
	_, e1 := eventlog.ParsePosition(m.Policies.After)
	_, e2 := eventlog.ParsePosition(m.Policies.To)
	return m, errors.Join(e1, e2)
}
