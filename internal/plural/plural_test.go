package plural

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 files":          Of(0, "file"),
		"1 file":           Of(int64(1), "file"),
		"2 files":          Of(uint64(2), "file"),
		"1 retry is":       Of(1, "retry is", "retries are"),
		"3 retries are":    Of(3, "retry is", "retries are"),
		"-1 files":         Of(-1, "file"),
		"100000 decisions": Of(100_000, "decision"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
