package group

import "testing"

func TestFollows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, first string
		n           uint32 // 0: it follows none
	}{
		{"a#2", "a", 2},
		{"a#2#3", "a#2", 3},
		{"#2", "", 2},
		{"gang/x#10", "gang/x", 10},
		{"a#4294967295", "a", 4294967295},
		{"a", "", 0},
		{"a#", "", 0},
		{"a#1", "", 0},
		{"a#02", "", 0},
		{"a#+2", "", 0},
		{"a#2 ", "", 0},
		{"a#b", "", 0},
		{"a#4294967296", "", 0},
	} {
		k := Key{Queue: "q", Set: "s", Name: tt.name}
		first, n, ok := k.Follows()
		if ok != (tt.n > 0) || ok && (n != tt.n || first != Key{Queue: "q", Set: "s", Name: tt.first}) {
			t.Errorf("%s follows %v as number %d: %v", tt.name, first, n, ok)
		}
		if ok && first.Follower(n) != k {
			t.Errorf("follower %d of %v is %v", n, first, first.Follower(n))
		}
	}
}
