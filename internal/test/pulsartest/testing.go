package pulsartest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// one is the broker of this test binary; it is the package's only state.
var one shared

type shared struct {
	sync.Mutex
	asked  bool
	broker *Broker
	err    error
}

// Shared returns the shared broker of this test binary, started on first use, or the broker that
// REFLOAT_TEST_PULSAR names. Tests separate their data by Namespace and must not disturb it. Without a broker the
// test is skipped, or fails if REQUIRE_INTEGRATION=1.
func Shared(t testing.TB) *Broker {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	if !one.asked {
		one.asked = true
		one.broker, one.err = startShared(context.Background())
	}
	giveUp(t, one.err)
	return one.broker
}

func startShared(ctx context.Context) (*Broker, error) {
	env, err := readEnvironment()
	if err != nil {
		return nil, err
	}
	if env.url != "" && env.way == "" {
		return Connect(ctx, env.url, env.adminURL)
	}
	return Launch(ctx, Options{})
}

// Main runs the tests of a package that uses Shared, ends the broker and
// returns the exit code: func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	one.Lock()
	defer one.Unlock()
	if one.broker == nil {
		return code
	}
	if err := one.broker.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "pulsartest: end the shared broker:", err)
		return max(code, 1)
	}
	return code
}

// Start runs a broker of the test's own and ends it with the test. Without a
// way to run one the test is skipped, or fails where REQUIRE_INTEGRATION=1.
func Start(t testing.TB, o Options) *Broker {
	t.Helper()
	b, err := Launch(t.Context(), o)
	giveUp(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("end the broker: %v", err)
		}
	})
	return b
}

// Patience is how long a client in a test waits for one answer of a broker: far longer than it takes on a busy machine.
const Patience = 2 * time.Minute

// giveUp ends a test that has no broker: a missing part is not the code's fault.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if env, e := readEnvironment(); e == nil && !env.required && errors.Is(err, ErrMissing) {
		t.Skip("SKIP: ", err)
	}
	t.Fatal(err)
}

// Namespace creates a fresh namespace and returns its name.
func (b *Broker) Namespace(t testing.TB) string {
	t.Helper()
	name, err := b.NewNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// CreateTopic creates a topic with so many partitions, or one without partitions for 0.
func (b *Broker) CreateTopic(t testing.TB, topic string, partitions int) {
	t.Helper()
	if err := b.NewTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}
