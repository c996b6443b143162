package jobdb_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/jobdb"
)

// oracleRows reads the rows of an oracle of Kubernetes.
func oracleRows(t *testing.T, name string) (rows []map[string]any) {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/oracles/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Rows []map[string]any }
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Rows) == 0 {
		t.Fatalf("%s: %v, %d rows", name, err, len(file.Rows))
	}
	return file.Rows
}

// TestOracleK8sCompletedIndexes: what was completed before, and the pods that succeeded.
// Indexes that no member can have are left out by the engine, not here.
func TestOracleK8sCompletedIndexes(t *testing.T) {
	t.Parallel()
	for _, row := range oracleRows(t, "k8s_completed_indexes.json") {
		observed := row["observed"].(map[string]any)
		set := jobdb.ParseIndexes(row["prior"].(map[string]any)["completedIndexes"].(string))
		for _, p := range observed["pods"].([]any) {
			pod := p.(map[string]any)
			index, err := strconv.ParseUint(pod["index"].(string), 10, 32)
			if err == nil && float64(index) < observed["completions"].(float64) && pod["phase"] == "Succeeded" {
				set.Add(uint32(index))
			}
		}
		if want := row["expected"].(map[string]any)["intervalsAsString_derived"]; set.String() != want {
			t.Errorf("%s: %q, want %q", row["id"], set.String(), want)
		}
	}
}

// TestOracleK8sIndexStrings: strings that Kubernetes accepts keep their indexes; of others, what is valid is kept, as Kubernetes skips corrupted intervals.
func TestOracleK8sIndexStrings(t *testing.T) {
	t.Parallel()
	for _, row := range oracleRows(t, "k8s_index_string_format.json") {
		observed, expected := row["observed"].(map[string]any), row["expected"].(map[string]any)
		for _, name := range []string{"indexesString", "completedIndexesStr", "failedIndexesStr"} {
			s, ok := observed[name].(string)
			if !ok {
				continue
			}
			got := jobdb.ParseIndexes(s).String()
			if _, invalid := expected["wantError"]; !invalid && each(s) != each(got) || invalid && name == "indexesString" && got == s {
				t.Errorf("%s: %q is written as %q", row["id"], s, got)
			}
		}
	}
}

// each lists the indexes of a valid string one by one.
func each(s string) (list string) {
	for piece := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(piece, "-")
		if !isRange {
			high = low
		}
		first, _ := strconv.Atoi(low)
		last, _ := strconv.Atoi(high)
		for i := first; i <= last && piece != ""; i++ {
			list += strconv.Itoa(i) + " "
		}
	}
	return list
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var set jobdb.Indexes
		in := map[uint32]bool{}
		for range rapid.IntRange(0, 30).Draw(r, "n") {
			i := rapid.Uint32Range(0, 20).Draw(r, "index")
			set.Add(i)
			in[i] = true
		}
		free := uint32(0)
		for in[free] {
			free++
		}
		if set.NextFree() != free {
			r.Fatalf("the next free index of %v is %d, want %d", set, set.NextFree(), free)
		}
		var want jobdb.Indexes
		for i := range uint32(21) {
			if in[i] {
				want.Add(i)
			}
		}
		if set.String() != want.String() || jobdb.ParseIndexes(set.String()).String() != set.String() {
			r.Fatalf("%v, in order %v, read again %v", set, want, jobdb.ParseIndexes(set.String()))
		}
	})
}
