package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
)

// hostile moves the cursor, in 7 and in 8 bits, reverses text and hides some.
const hostile = "a\x1b[2Jb\u009b2Jc\u202ed\u200b"

func raw(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	})
}

// Whatever strangers wrote, neither errors nor JSON send it to the terminal as it is.
func TestTerminalSafety(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, hostile+".yaml")
	if err := os.WriteFile(file, []byte("kind: Queue\nname: [1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"lint", file},
		{"lint", "-o", "json", file},
		{"lint", filepath.Join(dir, "none"+hostile)},
		{hostile},
		{"get", hostile},
		{"explain", hostile, "--data", dir},
		{"replay", "--log", filepath.Join(dir, hostile), "--policies", file},
	} {
		r := ctl(t, args...)
		if r.code == 0 || raw(r.out) || raw(r.err) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, r.code, r.out, r.err)
		}
	}
}

// TestHostileNames: the ids, names and messages of strangers reach no terminal as they are, whatever shows them.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	data, out := filepath.Join(t.TempDir(), "data"), t.TempDir()
	encode := func(events ...*pb.Event) []byte {
		b, err := proto.Marshal(&pb.EventSequence{Queue: hostile, JobSetName: hostile, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	h := &history{file: filepath.Join(out, "hostile.jsonl.gz")}
	h.mix(t, rand.New(rand.NewPCG(1, 1)), nil, [][]byte{
		encode(submitted(hostile, nil), leasedRun(hostile, hostile)),
		encode(failedRun(hostile, hostile, 1, hostile)),
	})
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", h.file, "--exit-when-drained").exits(t, exitFine)
	commands := [][]string{
		{"get", "jobs"},
		{"get", "job", hostile},
		{"get", "decisions", "--all"},
		{"get", "releases"},
		{"explain", hostile},
		{"shadow", "report"},
		{"history"},
		{"get", "policies"},
		{"get", "queues"},
		{"get", "settings"},
		{"get", "resources"},
		{"jobdb", "verify"},
		{"replay", "--verify"},
		{"replay", "--log", app.Dir(data).Events(), "--policies", testPolicies, "--all"},
		{"test", "record", "--job", hostile, "--out", out},
	}
	shown := 0
	for _, args := range commands {
		for _, form := range []string{show.FormTable, show.FormJSON, show.FormYAML} {
			run := slices.Clone(args)
			if args[0] != "replay" || args[1] != "--log" {
				run = append(run, "--data", data)
			}
			if form != show.FormTable {
				run = append(run, "-o", form)
			}
			r := ctl(t, run...)
			if raw(r.out) || raw(r.err) {
				t.Errorf("%q prints raw characters: %.300q %.300q", run, r.out, r.err)
			}
			if strings.Contains(r.out, "2Jc") {
				shown++
			}
		}
	}
	if shown < 8 {
		t.Errorf("only %d outputs show the hostile names", shown)
	}
}
