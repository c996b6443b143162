package filelog_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// writerDir, when set, makes the test binary a writer on that directory.
const writerDir = "FILELOG_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintln(os.Stderr, "writer:", writeOn(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func diskConfig(dir string) filelog.Config {
	return filelog.Config{FS: vfs.Default, Dir: dir, Partitions: 2, SegmentBytes: 200_000, Codec: filelog.CodecS2}
}

// writeOn continues counting from the end of each partition until it is killed.
func writeOn(dir string) error {
	log, err := filelog.Open(diskConfig(dir))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var next [2]int
	for p := range next {
		all, err := readAll(log, p, eventlog.Start)
		if err != nil {
			return err
		}
		next[p] = len(all)
	}
	for i := 0; ; i++ {
		p := i % 2
		var batch []eventlog.Message
		for range i%5 + 1 {
			batch = append(batch, eventlog.Message{Payload: counted(next[p])})
			next[p]++
		}
		if err := log.Append(p, batch); err != nil {
			return err
		}
	}
}

func counted(i int) []byte {
	return append(fmt.Appendf(nil, "%d ", i), bytes.Repeat([]byte{'x'}, i%300)...)
}

// A writer in another process is killed again and again while this one follows it: what
// was read stays, and each next writer continues after it.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/log"
	mustClose(t, mustOpen(t, diskConfig(dir))) // create the log
	c := diskConfig(dir)
	c.ReadOnly = true
	reads := mustOpen(t, c)
	defer mustClose(t, reads)
	readers := []eventlog.Reader{open(t, reads, 0), open(t, reads, 1)}
	defer func() {
		for _, r := range readers {
			mustClose(t, r)
		}
	}()
	var got [2][]eventlog.Message
	kills := 8
	if testing.Short() {
		kills = 2
	}
	for round := range kills {
		kill := startWriter(t, dir)
		for p, r := range readers {
			got[p] = append(got[p], followed(t, r, 500*(round+1))...)
		}
		if _, err := filelog.Open(diskConfig(dir)); !errors.Is(err, eventlog.ErrLocked) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("Open beside a writer: %v", err)
		}
		kill()
	}
	log := mustOpen(t, diskConfig(dir))
	defer mustClose(t, log)
	for p := range got {
		all, err := readAll(log, p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range all {
			if !bytes.Equal(m.Payload, counted(i)) {
				t.Fatalf("message %d of partition %d is %.20q", i, p, m.Payload)
			}
		}
		if len(all) < len(got[p]) {
			t.Fatalf("partition %d has %d messages, %d were read", p, len(all), len(got[p]))
		}
		for i, m := range got[p] {
			if err := same(m, all[i]); err != nil {
				t.Fatalf("partition %d, message %d was another: %v", p, i, err)
			}
		}
	}
	t.Logf("read %d and %d messages over %d kills", len(got[0]), len(got[1]), kills)
}

func mustClose(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// startWriter starts a process that writes, and returns a function that kills it.
func startWriter(t *testing.T, dir string) (kill func()) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if done {
			return
		}
		done = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("the writer said: %s", stderr.String())
		}
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		kill()
		t.Fatalf("the writer began with %q, %v", line, err)
	}
	return kill
}

// followed reads at least n messages, waiting for them.
func followed(t *testing.T, r eventlog.Reader, n int) []eventlog.Message {
	t.Helper()
	var all []eventlog.Message
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for len(all) < n {
		dst := make([]eventlog.Message, 100)
		k, err := r.Read(dst)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		all = append(all, dst[:k]...)
		if k > 0 {
			continue
		}
		select {
		case <-r.Changed():
		case <-timer.C:
			t.Fatalf("%d of %d messages came in a minute", len(all), n)
		}
	}
	return all
}
