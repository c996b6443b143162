package policy

import (
	"math/big"
	"testing"
	"time"
)

// FuzzDelay compares the delays with plain fraction arithmetic: they must be exact.
func FuzzDelay(f *testing.F) {
	f.Add(uint32(10_000), uint32(600_000), uint32(2000), uint32(3))
	f.Add(uint32(1), uint32(1<<32-1), uint32(1001), uint32(22_000))
	f.Add(uint32(3), uint32(1<<32-1), uint32(1500), uint32(40))
	f.Add(uint32(7), uint32(1<<32-1), uint32(1999), uint32(30))
	f.Add(uint32(5), uint32(0), uint32(1_000_000_000), uint32(2))
	f.Fuzz(func(t *testing.T, initial, longest, multiplier, n uint32) {
		growth := 1000 + multiplier%999_999_001
		n = 1 + n%25_000
		first, most := time.Duration(initial)*time.Millisecond, time.Duration(longest)*time.Second
		b := inherit(level{&Overrides{Backoff: Backoff{InitialDelay: &first, MaxDelay: &most, Multiplier: &growth}}, FromRule}).backoff
		exponent := big.NewInt(int64(n - 1))
		whole := new(big.Int).Exp(big.NewInt(int64(growth)), exponent, nil)
		whole.Mul(whole, big.NewInt(first.Milliseconds()))
		whole.Quo(whole, new(big.Int).Exp(big.NewInt(1000), exponent, nil))
		if whole.Cmp(big.NewInt(most.Milliseconds())) > 0 {
			whole.SetInt64(most.Milliseconds())
		}
		if got := b.delay(uint64(n)); got != time.Duration(whole.Int64())*time.Millisecond {
			t.Errorf("delay %d of %+v = %s, want %s ms", n, b, got, whole)
		}
	})
}
