package conformance_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/convert/conformance"
	"github.com/refloat/refloat/internal/policy"
)

// TestTimelines runs manifests through convert and the evaluator, step by step: testdata/timelines.
func TestTimelines(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/timelines", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "timeline":
				// timeline [manifest=FILE]: a script, after the manifest and a line == if no file is named. Each line of it:
				// [+DURATION] start, succeed, fail, exit=CODE or evict MEMBER…; or refused start MEMBER.
				manifest, script, inline := strings.Cut(td.Input, "\n==\n")
				if !inline {
					var name string
					td.ScanArgs(t, "manifest", &name)
					data, err := os.ReadFile("testdata/manifests/" + name)
					if err != nil {
						t.Fatal(err)
					}
					manifest, script = string(data), td.Input
				}
				return timeline(t, convert.File{Name: "in.yaml", Data: []byte(manifest)}, script)
			case "step": // step [succeeds] runs=N: one step with this retryPolicy, whose runs fail, or succeed
				runs := 0
				td.ScanArgs(t, "runs", &runs)
				return oneStep(t, td.Input, td.HasArg("succeeds"), runs)
			default:
				t.Fatalf("unknown verb %q", td.Cmd)
				return ""
			}
		})
	})
}

// timeline runs a script, and returns what was decided, with the time since the start.
func timeline(t *testing.T, manifest convert.File, script string) string {
	t.Helper()
	d, _, err := conformance.FromManifests(manifest)
	if err != nil {
		t.Fatal(err)
	}
	start := d.Now
	var b strings.Builder
	show := func(what string) {
		fmt.Fprintf(&b, "%s %s\n", day(d.Now.Sub(start)), what)
	}
	for _, line := range d.AllRecords() {
		show(line)
	}
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if by, ok := strings.CutPrefix(words[0], "+"); ok {
			d.Advance(duration(t, by))
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		var ids []string
		for _, part := range words[1:] {
			ids = append(ids, member(part))
		}
		err := error(nil)
		verb, code, _ := strings.Cut(words[0], "=")
		switch verb {
		case "start":
			err = d.Start(ids...)
		case "succeed":
			err = d.Succeed(ids...)
		case "fail":
			err = d.Fail(conformance.Failure{ExitCode: 1}, ids...)
		case "exit":
			var n int
			if n, err = strconv.Atoi(code); err == nil {
				err = d.Fail(conformance.Failure{ExitCode: int32(n)}, ids...)
			}
		case "deadline":
			err = d.Fail(conformance.Failure{Condition: policy.DeadlineExceeded}, ids...)
		case "evict":
			err = d.Fail(conformance.Failure{Condition: policy.Preempted}, ids...)
		case "refused":
			if err := d.Start(ids[1:]...); err != nil {
				show(err.Error())
				continue
			}
			t.Fatalf("%s: it started", line)
		default:
			t.Fatalf("unknown word %q", words[0])
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		show(strings.Join(words, " "))
		for _, r := range d.Records() {
			show("  " + r)
		}
	}
	for _, j := range d.Jobs() {
		fmt.Fprintf(&b, "%s: %s, %s\n", j.ID, j.State, plural(j.Runs))
	}
	return b.String()
}

// member is PART, PART/INDEX or PART/REPLICA/INDEX.
func member(s string) string {
	words := strings.Split(s, "/")
	number := func(i int) int {
		if i >= len(words) || i < 1 {
			return 0
		}
		n, _ := strconv.Atoi(words[i])
		return n
	}
	if len(words) == 2 {
		return conformance.Name(words[0], 0, number(1))
	}
	return conformance.Name(words[0], number(1), number(2))
}

func plural(runs int) string {
	if runs == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", runs)
}

// day formats the time since the start as the day of the chart that it would be.
func day(since time.Duration) string {
	const perDay = 24 * time.Hour
	return fmt.Sprintf("day %02d %s", 1+since/perDay, time.Time{}.Add(since%perDay).Format("15:04:05"))
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * 24 * time.Hour
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// oneStep runs a flow of one step, and a second that waits for it, until nothing of the first may start any more, at most so
// many runs.
func oneStep(t *testing.T, retryPolicy string, succeeds bool, most int) string {
	t.Helper()
	template := `
apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {name: %s}
spec:
  tasks:
  - replicas: 1
    template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}
---`
	manifest := fmt.Sprintf(template, "one") + fmt.Sprintf(template, "next") + `
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: flow}
spec:
  flows:
  - name: one
`
	for line := range strings.Lines(retryPolicy) {
		manifest += "    " + line
	}
	manifest += "\n  - {name: next, dependsOn: {targets: [one]}}\n"
	d, _, err := conformance.FromManifests(convert.File{Name: "flow.yaml", Data: []byte(manifest)})
	if err != nil {
		return err.Error() + "\n"
	}
	one, next := member("one"), member("next")
	delays := "at once"
	var b strings.Builder
	for run := 1; run <= most && d.Job(one).State == conformance.Queued; run++ {
		at, _ := d.NextStart()
		if !at.Before(d.Now) {
			delays = "after " + at.Sub(d.Now).String()
			d.Now = at
		}
		if err := d.Start(one); err != nil {
			t.Fatal(err)
		}
		if succeeds {
			err = d.Succeed(one)
		} else {
			err = d.Fail(conformance.Failure{ExitCode: 1}, one)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "run %d %s\n", run, delays)
		delays = "at once"
	}
	fmt.Fprintf(&b, "one: %s, next: %s, flow: %s\n", d.Job(one).State, d.Job(next).State, d.Group("flow").State)
	return b.String()
}
