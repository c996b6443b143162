package armadabox_test

import (
	"bytes"
	"compress/zlib"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// hostname is the label by which Armada knows nodes.
const hostname = "kubernetes.io/hostname"

func bytesField(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func textField(b []byte, field protowire.Number, value string) []byte {
	return bytesField(b, field, []byte(value))
}

// entries appends a map of texts.
func entries(b []byte, field protowire.Number, all map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		b = bytesField(b, field, textField(textField(nil, 1, key), 2, all[key]))
	}
	return b
}

func stamp(t time.Time) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(t.Unix()))
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(t.Nanosecond()))
}

// quantities is a map of resources to Kubernetes' quantities.
func quantities(b []byte, field protowire.Number, r scheduling.Resources) []byte {
	for name, text := range map[string]string{"cpu": strconv.FormatInt(r[0], 10), "memory": strconv.FormatInt(r[1], 10) + "Gi"} {
		b = bytesField(b, field, bytesField(textField(nil, 1, name), 2, textField(nil, 1, text)))
	}
	return b
}

// schedulingInfo is Armada's JobSchedulingInfo of a job. Avoided nodes are written as the hold-back writes them.
func schedulingInfo(t *testing.T, pool string, j scheduling.Job) []byte {
	t.Helper()
	annotations := map[string]string{}
	if g := j.Gang; g.ID != "" {
		annotations["armadaproject.io/gangId"] = pool + "-" + g.ID
		annotations["armadaproject.io/gangCardinality"] = strconv.Itoa(g.Cardinality)
		if g.MinimumCardinality > 0 {
			annotations["armadaproject.io/gangMinimumCardinality"] = strconv.Itoa(g.MinimumCardinality)
		}
		if g.NodeUniformityLabel != "" {
			annotations["armadaproject.io/gangNodeUniformityLabel"] = g.NodeUniformityLabel
		}
	}
	pod := entries(nil, 7, annotations)
	pod = bytesField(pod, 6, quantities(quantities(nil, 1, j.Request), 2, j.Request))
	info := bytesField(nil, 5, bytesField(nil, 1, pod))
	info = textField(info, 6, j.PriorityClass)
	info = bytesField(info, 7, stamp(j.Submitted))
	info = protowire.AppendVarint(protowire.AppendTag(info, 8, protowire.VarintType), uint64(j.Priority))
	info, err := schedulerdb.Requirements(info, schedulerdb.Placement{AvoidNodes: j.AvoidedNodes, NodeLabel: hostname, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// executorRow is what an executor last told the scheduler, as the table executors has it.
func executorRow(t *testing.T, pool string, in *input) []byte {
	t.Helper()
	ran := map[string][]byte{}
	for _, j := range in.jobs() {
		if on, ok := in.nodeByJob[j.ID]; ok {
			run := protowire.AppendVarint(protowire.AppendTag(textField(nil, 1, runID(pool, j)), 2, protowire.VarintType), 2)
			ran[on] = bytesField(ran[on], 9, run)
		}
	}
	executor := textField(textField(nil, 1, pool), 2, pool)
	for _, n := range in.nodes {
		labels := maps.Clone(n.Labels)
		labels[hostname] = n.Name
		node := textField(textField(textField(nil, 1, pool+"-"+n.Name), 12, n.Name), 19, pool)
		node = bytesField(node, 2, stamp(time.Now()))
		node = entries(node, 6, labels)
		node = bytesField(node, 7, quantities(nil, 1, n.Total))
		node = append(node, ran[n.Name]...)
		executor = bytesField(executor, 3, textField(node, 18, pool))
	}
	executor = bytesField(executor, 5, stamp(time.Now()))
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write(executor); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func jobID(pool string, j scheduling.Job) string { return pool + "-" + j.ID }

func runID(pool string, j scheduling.Job) string { return jobID(pool, j) + "-run" }
