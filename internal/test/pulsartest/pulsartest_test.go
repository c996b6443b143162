package pulsartest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/test/pulsartest"
)

// launchWay, when set, makes the test binary a program that runs a broker,
// prints its admin URL and waits to be killed.
const launchWay = "PULSARTEST_LAUNCH"

func TestMain(m *testing.M) {
	if way := os.Getenv(launchWay); way != "" {
		b, err := pulsartest.Launch(context.Background(), pulsartest.Options{Way: pulsartest.Way(way)})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(b.AdminURL)
		select {}
	}
	os.Exit(pulsartest.Main(m))
}

func connect(t *testing.T, b *pulsartest.Broker) pulsar.Client {
	t.Helper()
	c, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: b.URL, ConnectionTimeout: 5 * time.Second, OperationTimeout: pulsartest.Patience, KeepAliveInterval: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open tries for a while: a broker that has just started may still answer with
// a PersistenceError, which the client takes for an answer.
func open[T any](t *testing.T, try func() (T, error)) T {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range 30 {
		v, err := try()
		if err == nil {
			return v
		}
		t.Logf("try again: %v", err)
		<-tick.C
	}
	v, err := try()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// send publishes so many messages, numbered on from first.
func send(t *testing.T, c pulsar.Client, topic string, first, n int) {
	t.Helper()
	p := open(t, func() (pulsar.Producer, error) {
		return c.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	})
	defer p.Close()
	for i := range n {
		if _, err := p.Send(t.Context(), &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "m%d", first+i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// expect reads messages m0 to m(n-1), each with its index, and no more.
func expect(t *testing.T, c pulsar.Client, topic string, n int) {
	t.Helper()
	r := open(t, func() (pulsar.Reader, error) {
		return c.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	})
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), pulsartest.Patience)
	defer cancel()
	for i := range n {
		m, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("read message %d of %d: %v", i, n, err)
		}
		if got, want := string(m.Payload()), fmt.Sprintf("m%d", i); got != want {
			t.Fatalf("message %d = %q, want %q", i, got, want)
		}
		if m.Index() == nil || *m.Index() != uint64(i) {
			t.Fatalf("message %d has index %v, want %d", i, m.Index(), i)
		}
	}
	last, err := r.GetLastMessageID()
	if err != nil {
		t.Fatal(err)
	}
	if int(last.EntryID()) != n-1 && last.EntryID() != -1 && r.HasNext() {
		t.Fatalf("the topic goes on to %v", last)
	}
}

// TestShared uses the broker that every test of this binary shares.
func TestShared(t *testing.T) {
	t.Parallel()
	b := pulsartest.Shared(t)
	if again := pulsartest.Shared(t); again != b {
		t.Fatalf("a second broker is shared: %v, %v", b.URL, again.URL)
	}
	ns := b.Namespace(t)
	if other := b.Namespace(t); ns == other {
		t.Fatalf("namespace %s twice", ns)
	}
	topic := "persistent://" + ns + "/t"
	b.CreateTopic(t, topic, 3)
	c := connect(t, b)
	parts, err := c.TopicPartitions(topic)
	if err != nil || len(parts) != 3 {
		t.Fatalf("TopicPartitions(%s) = %v, %v, want 3", topic, parts, err)
	}
	send(t, c, parts[1], 0, 10)
	expect(t, c, parts[1], 10)
	if err := b.Unload(topic); err != nil {
		t.Fatal(err)
	}
	expect(t, c, parts[1], 10)
}

func TestNoTopicByItself(t *testing.T) {
	t.Parallel()
	b := pulsartest.Shared(t)
	topic := "persistent://" + b.Namespace(t) + "/nobody-made-this"
	if p, err := connect(t, b).CreateProducer(pulsar.ProducerOptions{Topic: topic}); err == nil {
		p.Close()
		t.Fatalf("a producer made topic %s", topic)
	}
	if err := b.Unload(topic); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("Unload of no topic = %v, want 404", err)
	}
}

func TestBadTopicName(t *testing.T) {
	t.Parallel()
	var b pulsartest.Broker
	if err := b.NewTopic(t.Context(), "events", 1); err == nil || !strings.Contains(err.Error(), "persistent://tenant/namespace/topic") {
		t.Errorf("NewTopic(events) = %v, want a hint at the full name", err)
	}
}

// eachWay runs a test once for each way to run a broker.
func eachWay(t *testing.T, test func(t *testing.T, way pulsartest.Way)) {
	for _, way := range []pulsartest.Way{pulsartest.Process, pulsartest.Container} {
		t.Run(string(way), func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a broker of its own")
			}
			if forced := os.Getenv("REFLOAT_TEST_BROKER"); forced != "" && forced != string(way) {
				t.Skip("REFLOAT_TEST_BROKER=" + forced)
			}
			test(t, way)
		})
	}
}

// TestLeftBehind kills a program that runs a broker: nothing of it stays.
func TestLeftBehind(t *testing.T) {
	eachWay(t, func(t *testing.T, way pulsartest.Way) {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(cmd.Environ(), launchWay+"="+string(way), "TMPDIR="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		b := pulsartest.Broker{AdminURL: lines.Text()}
		if strings.Contains(b.AdminURL, pulsartest.ErrMissing.Error()) {
			_ = cmd.Wait()
			pulsartest.Start(t, pulsartest.Options{Way: way}) // skips, or fails
		}
		if !answers(&b) {
			t.Errorf("no broker: %s", b.AdminURL)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(pulsartest.Patience); ; <-tick.C {
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			alive := answers(&b)
			if len(left) == 0 && !alive {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("after %v: the broker answers: %t, left in its directory: %v", pulsartest.Patience, alive, left)
			}
		}
	})
}

// TestCrash kills, pauses and restarts a broker.
func TestCrash(t *testing.T) { eachWay(t, crash) }

func crash(t *testing.T, way pulsartest.Way) {
	start := time.Now()
	b := pulsartest.Start(t, pulsartest.Options{Way: way, Settings: map[string]string{"defaultNumberOfNamespaceBundles": "2"}})
	t.Logf("usable after %v", time.Since(start))
	topic := "persistent://" + b.Namespace(t) + "/t"
	b.CreateTopic(t, topic, 1)
	one := topic + "-partition-0"
	c := connect(t, b)
	send(t, c, one, 0, 20)

	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if answers(b) {
		t.Fatal("a killed broker answers")
	}
	if err := b.Pause(); err == nil {
		t.Error("a dead broker can be paused")
	}
	start = time.Now()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("usable again after %v", time.Since(start))
	expect(t, connect(t, b), one, 20)
	send(t, c, one, 20, 5) // the client of before
	expect(t, c, one, 25)

	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	if answers(b) {
		t.Error("a paused broker answers")
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	expect(t, c, one, 25)
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	// A paused broker is closed as well.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if answers(b) {
		t.Error("a closed broker answers")
	}
}

func answers(b *pulsartest.Broker) bool {
	c := http.Client{Timeout: time.Second}
	resp, err := c.Get(b.AdminURL + "/admin/v2/clusters")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}

// TestForeign does not disturb a broker that somebody else runs.
func TestForeign(t *testing.T) {
	t.Parallel()
	own := pulsartest.Shared(t)
	b, err := pulsartest.Connect(t.Context(), own.URL, own.AdminURL+"/")
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"Kill": b.Kill, "Pause": b.Pause, "Resume": b.Resume,
		"Restart": func() error { return b.Restart(t.Context()) },
	} {
		if err := do(); !errors.Is(err, pulsartest.ErrForeign) {
			t.Errorf("%s = %v, want %v", name, err, pulsartest.ErrForeign)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if !answers(own) {
		t.Error("the broker is gone")
	}
}

// TestWithoutBroker says what is missing: a skip by default, a failure where it is required.
func TestWithoutBroker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, way, required, want string
		fails                     bool
	}{
		{"skipped", "process", "", "--- SKIP: TestBroker", false},
		{"says how", "process", "", "run hack/parts.sh", false},
		{"required", "process", "1", "--- FAIL: TestBroker", true},
		{"unknown way", "vm", "", `REFLOAT_TEST_BROKER="vm"`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestBroker$", "-test.v")
			cmd.Env = append(cmd.Environ(), "REFLOAT_TEST_BROKER="+tt.way, "REFLOAT_TEST_PULSAR=", "REFLOAT_TEST_PULSAR_ADMIN=",
				"REFLOAT_PULSAR_HOME="+t.TempDir(), "REQUIRE_INTEGRATION="+tt.required)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.fails || !strings.Contains(string(out), tt.want) {
				t.Errorf("error %v, want one: %t, and %q in\n%s", err, tt.fails, tt.want, out)
			}
		})
	}
}

// TestBroker is what TestWithoutBroker runs.
func TestBroker(t *testing.T) {
	t.Parallel()
	if b := pulsartest.Shared(t); !answers(b) {
		t.Errorf("no answer from %s", b.AdminURL)
	}
}
