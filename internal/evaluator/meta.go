package evaluator

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/projection"
)

// meta is what an owner commits with the projection, in the same batch
// (protocol.md 6). The input position is Positions.Chain.InTo.
type meta struct {
	Positions follow.Positions `json:"Place"`
	Progress  Progress
	Watermark int64
	Horizon   int64
	// Rebuilding: the state is being rebuilt, and the chain does not record this yet. Only
	// the owner that commits such a state can use it.
	Rebuilding bool `json:",omitempty"`
}

// PositionsIn returns the position of a store's state; follow.Beginning for an empty one.
func PositionsIn(store Store) (follow.Positions, error) {
	b, err := store.Meta()
	if err != nil {
		return follow.Positions{}, fmt.Errorf("read state: %w", err)
	}
	m, err := decodeMeta(b)
	return m.Positions, err
}

// Resume returns a processor that continues where a store's state ends, and where that
// is. Its rules are not set.
func Resume(store Store) (*Processor, follow.Positions, error) {
	b, err := store.Meta()
	if err != nil {
		return nil, follow.Positions{}, fmt.Errorf("read state: %w", err)
	}
	m, err := decodeMeta(b)
	if err == nil && m.Rebuilding {
		err = errors.New("the state is being rebuilt")
	}
	if err != nil {
		return nil, follow.Positions{}, err
	}
	state, err := projection.NewState(store, m.Watermark, m.Horizon)
	return &Processor{State: state, Progress: m.Progress}, m.Positions, err
}

// The first byte says how the rest is encoded: the struct's fields in order, each of its
// fixed size, big-endian. Earlier builds wrote JSON. A changed struct is a new version.
const (
	metaJSON   = 1
	metaBinary = 2
)

// DefaultHorizon is the horizon, in nanoseconds, until a policy generation is
// activated (semantics.md 13).
const DefaultHorizon = int64(24 * 60 * 60 * 1e9)

func emptyMeta() meta {
	return meta{Positions: follow.Beginning, Watermark: projection.NoWatermark, Horizon: DefaultHorizon}
}

func (m *meta) encode() ([]byte, error) {
	b, err := binary.Append([]byte{metaBinary}, binary.BigEndian, m)
	if err != nil {
		return nil, fmt.Errorf("encode meta: %w", err)
	}
	return b, nil
}

func decodeMeta(b []byte) (meta, error) {
	if b == nil {
		return emptyMeta(), nil
	}
	var m meta
	var err error
	switch {
	case len(b) > 0 && b[0] == metaJSON:
		err = json.Unmarshal(b[1:], &m)
	case len(b) == 1+binary.Size(m) && b[0] == metaBinary:
		_, err = binary.Decode(b[1:], binary.BigEndian, &m)
	default:
		err = errors.New("a version that this program does not read")
	}
	if err != nil {
		return meta{}, fmt.Errorf("%w: meta: %w", projection.ErrCorrupt, err)
	}
	return m, nil
}
