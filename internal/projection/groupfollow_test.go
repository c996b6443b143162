package projection

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFollowers: a list of groups is read back as it was written, and nothing but such a list is
// one.
func TestFollowers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(rapid.Uint32Min(2), 1, 5, rapid.ID).Draw(t, "list")
		slices.Sort(list)
		got, err := decodeFollowers(appendFollowers(nil, list))
		if err != nil || !slices.Equal(got, list) {
			t.Fatalf("%v is read as %v, %v", list, got, err)
		}
	})
	for _, bad := range [][]byte{
		nil,
		{groupVersion},
		{groupVersion + 1, 1, 2},
		{groupVersion, 1},
		{groupVersion, 1, 1},
		{groupVersion, 2, 3, 3},
		{groupVersion, 2, 3, 2},
		{groupVersion, 1, 2, 3},
		appendFollowers(nil, []uint32{2, 3})[:3],
	} {
		if got, err := decodeFollowers(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v is read as %v, %v", bad, got, err)
		}
	}
}
