package trace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/simulate/trace"
)

const (
	podHeading  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	pods        = podHeading + "a,2000,1024,1,460,,LS,Running,100,400,160\nb,1000,512,2,1000,,BE,Failed,40,100,50\nc,0,0,0,0,,LS,Pending,200,300,\n"
	nodeHeading = "sn,cpu_milli,memory_mib,gpu,model\n"
	nodes       = nodeHeading + "n1,4000,4096,2,T4\nn2,4000,4096,0,\nn3,4000,4096,2,V100\n"
)

// TestRead: all that is read of a small trace.
func TestRead(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(pods))
	_ = z.Close()
	w, assumed, err := trace.Pods(&zipped, "pods.csv.gz", 2)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(w.Given)
	a := &w.Given[1]
	if len(w.Given) != 3 || w.Given[0].ID != "b" || w.Given[0].Submitted != 0 || a.Submitted != 30*time.Second || a.RunTime.P50 != 240*time.Second || a.Where != "pods.csv.gz:2" ||
		a.Request["nvidia.com/gpu"] != "460m" || a.Request["cpu"] != "2000m" || a.Request["memory"] != "1024Mi" || a.PriorityClass != "LS" ||
		w.Given[0].Request["nvidia.com/gpu"] != "2000m" || w.Given[2].RunTime.P50 != 50*time.Second || len(w.Given[2].Request) != 2 {
		t.Errorf("%s", got)
	}
	if !strings.Contains(strings.Join(assumed, "\n"), "1 pods never ran there: they take as long as the median of the others, 50s") {
		t.Errorf("%q", assumed)
	}
	c, _, err := trace.Nodes(strings.NewReader(nodes), "nodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Nodes) != 2 || strings.Join(c.Nodes[0].Names, " ") != "n1 n3" {
		t.Errorf("%+v", c.Nodes)
	}
	c.Queues = []simulate.Queue{{Name: "q"}}
	if err := simulate.Check(c, w); err != nil {
		t.Error(err)
	}
	w.Given[0].Request["cpu"] = "4001m"
	if err := simulate.Check(c, w); err == nil || !strings.Contains(err.Error(), `pods.csv.gz:3: job "b": it fits no node`) {
		t.Error(err)
	}
}

// TestBadInput: each mistake is an error that names file and line.
func TestBadInput(t *testing.T) {
	t.Parallel()
	row := func(from, to string) string { return strings.Replace(pods, from, to, 1) }
	for _, c := range []struct{ text, want string }{
		{"", "f.csv: the file is empty"},
		{podHeading, "f.csv: the trace holds no pod"},
		{row("qos,", "class,"), "f.csv:1: columns are missing: qos"},
		{row("gpu_spec,", "qos,"), `f.csv:1: there are two columns "qos"`},
		{row("2000", "NaN"), `f.csv:2: cpu_milli is "NaN"`},
		{row("2000", "-1"), `f.csv:2: cpu_milli is "-1"`},
		{row("1024", "99999999999999999999"), `f.csv:2: memory_mib is "99999999999999999999"`},
		{row("1024", "1e3"), `f.csv:2: memory_mib is "1e3"`},
		{row(",460,", ",,"), `f.csv:2: gpu_milli is ""`},
		{row("100,400,160", "100,400,90"), "f.csv:2: scheduled_time 90 is before creation_time 100"},
		{row("100,400,160", "100,150,160"), "f.csv:2: deletion_time 150 is before scheduled_time 160"},
		{row("a,2000", ",2000"), "f.csv:2: name is empty"},
		{row("a,2000", "a"), "f.csv:2: wrong number of fields"},
		{row("a,2000", "\"a,2000"), "f.csv:"},
		{podHeading + "c,0,0,0,0,,LS,Pending,200,300,\n", "no pod of the trace ran"},
		{"\x1f\x8bnonsense", "f.csv: "},
	} {
		if _, _, err := trace.Pods(strings.NewReader(c.text), "f.csv", 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	for _, load := range []float64{0, -1, 1e9} {
		if _, _, err := trace.Pods(strings.NewReader(pods), "f.csv", load); err == nil {
			t.Errorf("load %v is accepted", load)
		}
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(pods))
	_ = z.Close()
	if _, _, err := trace.Pods(bytes.NewReader(zipped.Bytes()[:zipped.Len()-12]), "f.csv.gz", 1); err == nil || !strings.Contains(err.Error(), "f.csv.gz: the file is truncated after") {
		t.Error(err)
	}
	for _, c := range []struct{ text, want string }{
		{"", "the file is empty"},
		{nodeHeading, "the trace holds no node"},
		{nodeHeading + "n,1,1,NaN,\n", `f.csv:2: gpu is "NaN"`},
		{nodeHeading + "n,1,1,1,\nn,1,1,1,\n", `f.csv:3: there are two nodes "n"`},
		{nodeHeading + ",1,1,1,\n", "f.csv:2: sn is empty"},
	} {
		if _, _, err := trace.Nodes(strings.NewReader(c.text), "f.csv"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestOpenb simulates the first pods of Alibaba's trace, where the machine has it.
func TestOpenb(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "..", "shared", "traces") // beside the repository
	podFile, err := os.Open(filepath.Join(dir, "openb_pods.csv.gz"))
	if err != nil {
		t.Skipf("this machine does not have the trace: %v", err)
	}
	defer func() { _ = podFile.Close() }()
	nodeFile, err := os.Open(filepath.Join(dir, "openb_nodes.csv.gz"))
	if err != nil {
		t.Skipf("this machine does not have the trace: %v", err)
	}
	defer func() { _ = nodeFile.Close() }()
	w, _, err := trace.Pods(podFile, "pods", 4)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := trace.Nodes(nodeFile, "nodes")
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Given) != 8152 {
		t.Errorf("%d pods", len(w.Given))
	}
	c.Queues = []simulate.Queue{{Name: "a"}, {Name: "b"}}
	if err := simulate.Check(c, w); err != nil {
		t.Fatal(err)
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: "p", Data: []byte("kind: RetrySettings\nspec: {}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	w.Given = w.Given[:100]
	r, err := simulate.Run(t.Context(), simulate.Options{Candidate: simulate.Candidate{Set: set}, Cluster: c, Workload: w})
	if err != nil {
		t.Fatal(err)
	}
	if r.Done != 100 {
		t.Errorf("%+v", r.Tally)
	}
}

// FuzzPods: no text makes the reader panic, and what it accepts is a workload or is refused by Check.
func FuzzPods(f *testing.F) {
	f.Add([]byte(pods), 1.0)
	f.Add([]byte(nodes), 2.0)
	f.Add([]byte("\x1f\x8b"), 0.5)
	f.Fuzz(func(t *testing.T, text []byte, load float64) {
		_, _, _ = trace.Nodes(bytes.NewReader(text), "f")
		w, _, err := trace.Pods(bytes.NewReader(text), "f", load)
		if err != nil {
			return
		}
		c, _, err := trace.Nodes(strings.NewReader(nodes), "n")
		if err != nil {
			t.Fatal(err)
		}
		c.Queues = []simulate.Queue{{Name: "q"}}
		_ = simulate.Check(c, w)
	})
}
