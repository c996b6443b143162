package model

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// The rows of other systems' tests run through the model here, and through the engine in
// internal/evaluator, from a file: what each row says to the model, and what that answers.

var (
	update     = flag.Bool("update", false, "write what the rows of groups say and answer")
	trialsFile = filepath.Join("..", "..", "..", "testdata", "groups", "rows.json.gz")
	trials     struct {
		sync.Mutex
		list []*Trial
	}
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		if err := settleTrials(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// settleTrials compares the trials that ran with those in the file, or writes them.
func settleTrials() error {
	slices.SortFunc(trials.list, func(a, b *Trial) int { return cmp.Compare(a.Name, b.Name) })
	got, err := json.MarshalIndent(trials.list, "", " ")
	if err != nil {
		return err
	}
	if *update {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if _, err := w.Write(got); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		return os.WriteFile(trialsFile, packed.Bytes(), 0o644)
	}
	want, err := ReadTrials(trialsFile)
	if err != nil {
		return err
	}
	// Rows that are new are not in the file until -update writes it.
	trials.list = slices.DeleteFunc(trials.list, func(ran *Trial) bool {
		return !slices.ContainsFunc(want, func(was *Trial) bool { return was.Name == ran.Name })
	})
	if got, err = json.MarshalIndent(trials.list, "", " "); err != nil {
		return err
	}
	if was, err := json.MarshalIndent(want, "", " "); err != nil || !bytes.Equal(was, got) {
		return fmt.Errorf("%s is not what the rows of groups say now: go test ./internal/test/model -update (%w)", trialsFile, err)
	}
	return nil
}
