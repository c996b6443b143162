package evaluator

import (
	"encoding/json"
	"fmt"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/projection"
)

// meta is what an owner commits with the projection, in the same batch
// (PROTOCOL 6). The input position is Place.Chain.InTo.
type meta struct {
	Place     follow.Place
	Progress  Progress
	Watermark int64
	Horizon   int64
	// Rebuilding: the state is being rebuilt, and the chain does not record this yet. Only
	// the owner that commits such a state can use it.
	Rebuilding bool `json:",omitempty"`
}

// PlaceIn returns the position of a store's state; follow.Beginning for an empty one.
func PlaceIn(store Store) (follow.Place, error) {
	b, err := store.Meta()
	if err != nil {
		return follow.Place{}, fmt.Errorf("read state: %w", err)
	}
	m, err := decodeMeta(b)
	return m.Place, err
}

const metaVersion = 1

// DefaultHorizon is the horizon, in nanoseconds, until a policy generation is
// activated (SEMANTICS 13).
const DefaultHorizon = int64(24 * 60 * 60 * 1e9)

func emptyMeta() meta {
	return meta{Place: follow.Beginning, Watermark: projection.NoWatermark, Horizon: DefaultHorizon}
}

// encode returns a version byte and JSON; it is called once per envelope.
func (m *meta) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode meta: %w", err)
	}
	return append([]byte{metaVersion}, b...), nil
}

func decodeMeta(b []byte) (meta, error) {
	if b == nil {
		return emptyMeta(), nil
	}
	if len(b) == 0 || b[0] != metaVersion {
		return meta{}, fmt.Errorf("%w: meta of a version that this program does not read", projection.ErrCorrupt)
	}
	var m meta
	if err := json.Unmarshal(b[1:], &m); err != nil {
		return meta{}, fmt.Errorf("%w: meta: %w", projection.ErrCorrupt, err)
	}
	return m, nil
}
