package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/simulate/report"
)

const hostile = `<script>alert(1)</script>"'&]]>` + "\u202e\x00\x1b[31m"

// simulated runs two candidates under two seeds, with hostile names everywhere that users give them.
func simulated(t *testing.T) [][]*simulate.Result {
	t.Helper()
	var files []policyfile.File
	names, err := filepath.Glob("../../../examples/policies/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.yaml") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, policyfile.File{Name: name, Data: text})
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	other, err := set.Assign("settings.globalMaxRetries=0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := simulate.ReadCluster([]byte(simulate.DefaultCluster()))
	if err != nil {
		t.Fatal(err)
	}
	w, err := simulate.ReadWorkload([]byte(simulate.DefaultWorkload()))
	if err != nil {
		t.Fatal(err)
	}
	w.Jobs = 200
	for i := range w.Kinds {
		for f := range w.Kinds[i].Failures {
			w.Kinds[i].Failures[f].Cause += hostile
		}
	}
	candidates := []simulate.Candidate{{Name: "a\xff" + hostile, Set: set}, {Name: "b" + hostile, Set: other}}
	c = c.WithQueues(candidates...)
	c.Queues = append(c.Queues, simulate.Queue{Name: "q" + hostile})
	var out [][]*simulate.Result
	for _, candidate := range candidates {
		var of []*simulate.Result
		for seed := range uint64(2) {
			r, err := simulate.Run(t.Context(), simulate.Options{Candidate: candidate, Cluster: c, Workload: w, Seed: seed + 1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Failures { // names of policies are checked when they are read: what if they were not
				r.Failures[i].Policy += hostile
				r.Failures[i].Rule += hostile
			}
			of = append(of, r)
		}
		out = append(out, of)
	}
	return out
}

func write(t *testing.T, results [][]*simulate.Result) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, results, simulate.Assumptions()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestHostileNames: no name becomes markup; each picture is well-formed and has a title and a description; nothing is loaded.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	text := write(t, simulated(t))
	if !strings.Contains(text, "&lt;script&gt;alert") {
		t.Error("the names are not there")
	}
	for _, bad := range []string{"<script", "javascript:", "\u202e", "\x1b", "\x00", "src=", "href=", "url(", "@import", "<link", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	pictures := strings.Split(text, "<svg ")[1:]
	if len(pictures) < 12 {
		t.Errorf("%d pictures", len(pictures))
	}
	ids := map[string]bool{}
	for _, p := range pictures {
		p, _, ok := strings.Cut("<svg "+p, "</svg>")
		d, titles, descs, paths := xml.NewDecoder(strings.NewReader(p+"</svg>")), 0, 0, 0
		for ok {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("a picture is not well-formed: %v\n%s", err, p)
				break
			}
			start, is := token.(xml.StartElement)
			if !is {
				continue
			}
			switch start.Name.Local {
			case "title":
				titles++
			case "desc":
				descs++
			case "path":
				paths++
			case "svg", "text":
			default:
				t.Errorf("a picture has an element %s", start.Name.Local)
			}
			for _, a := range start.Attr {
				if a.Name.Local == "id" && ids[a.Value] {
					t.Errorf("two elements have the id %q", a.Value)
				} else if a.Name.Local == "id" {
					ids[a.Value] = true
				}
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
					t.Errorf("a picture has the attribute %s", a.Name.Local)
				}
			}
		}
		if titles != 1 || descs != 1 || paths == 0 {
			t.Errorf("a picture has %d titles, %d descriptions, %d paths", titles, descs, paths)
		}
	}
}

// TestDeterminism: the bytes depend on the seeds only, however many processors there are.
func TestDeterminism(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	first := write(t, simulated(t))
	for _, n := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(n)
		if write(t, simulated(t)) != first {
			t.Fatalf("GOMAXPROCS=%d: another page", n)
		}
	}
}

// TestNothingHappens: results without any run, queue series or failure are a page too.
func TestNothingHappens(t *testing.T) {
	t.Parallel()
	text := write(t, [][]*simulate.Result{{{Candidate: "none", Resources: []string{"cpu"}, Queues: []simulate.QueueResult{{Queue: "q"}}}}})
	for _, want := range []string{"There is nothing to show.", "1 seed is too few to decide by", "<bdi>none</bdi>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

// TestWhatDecidesComesFirst: under enough seeds, the page begins with the differences, their intervals, and which of them are real after
// correction; under three it says that these are too few.
func TestWhatDecidesComesFirst(t *testing.T) {
	t.Parallel()
	of := func(name string, seeds, retries int) (out []*simulate.Result) {
		for i := range seeds {
			out = append(out, &simulate.Result{Candidate: name, Seed: uint64(i), Resources: []string{"cpu"}, Tally: simulate.Tally{Jobs: 100, Done: 50 + i%3, DoneInTime: 40 + i%3, Retries: uint64(retries + i)}})
		}
		return out
	}
	text := write(t, [][]*simulate.Result{of("a", 12, 5), of("b", 12, 9)})
	decides, rest, ok := strings.Cut(text, "<h2>What decides</h2>")
	if !ok || strings.Contains(decides, "<svg") || strings.Contains(text, "too few") || !strings.Contains(rest, "<h2>All measures</h2>") {
		t.Fatalf("what decides is not first: %s", text)
	}
	decides, _, _ = strings.Cut(rest, "</section>")
	for _, want := range []string{"b (B) against a (A), medians over 12 seeds: 4.0 more of &#34;retries&#34;.", "B and A are equal under every seed", "1 of 14 other measures differ by more than chance", "retries</bdi>", "4.0 (4.0 to 4.0)", "12 of 12", "0.00049"} {
		if !strings.Contains(decides, want) {
			t.Errorf("what decides does not say %q: %s", want, decides)
		}
	}
	if few := write(t, [][]*simulate.Result{of("a", 3, 5), of("b", 3, 9)}); !strings.Contains(few, "3 seeds are too few to decide by: use --seeds 10 or more") || !strings.Contains(few, "0 of 14 other measures") {
		t.Errorf("three seeds: %s", few)
	}
}
