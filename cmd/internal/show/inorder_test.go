package show_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/refloat/refloat/cmd/internal/show"
)

// TestInOrder: parts that are made at once are printed one after the other, also when next to nothing may be kept.
func TestInOrder(t *testing.T) {
	t.Parallel()
	const parts, lines = 7, 100
	var want strings.Builder
	for i := range parts {
		for j := range lines {
			fmt.Fprintln(&want, i, j)
		}
	}
	for _, atOnce := range []int{1, 2, parts} {
		for _, keep := range []int{0, 10, 1 << 20} {
			var out bytes.Buffer
			err := show.InOrder(&out, parts, atOnce, keep, func(i int, w io.Writer) error {
				for j := range lines {
					if _, err := fmt.Fprintln(w, i, j); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil || out.String() != want.String() {
				t.Errorf("%d at once, %d bytes kept: %v, %q", atOnce, keep, err, out.String())
			}
		}
	}
}

// TestInOrderWorksAtOnce: a later part is made while an earlier one is not over.
func TestInOrderWorksAtOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	wrote := make(chan struct{})
	err := show.InOrder(&out, 2, 2, 1, func(i int, w io.Writer) error {
		if i == 0 {
			<-wrote
		} else {
			defer close(wrote)
		}
		_, err := fmt.Fprint(w, i)
		return err
	})
	if err != nil || out.String() != "01" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestInOrderFails: it prints what comes before the first part that fails, and says why that one did, whichever fails
// earlier. What waits to be printed does not wait for ever.
func TestInOrderFails(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var failed sync.WaitGroup
	failed.Add(1)
	first := errors.New("first")
	err := show.InOrder(&out, 4, 4, 0, func(i int, w io.Writer) error {
		switch i {
		case 1:
			failed.Wait()
			return first
		case 2:
			defer failed.Done()
			return errors.New("later")
		}
		_, err := fmt.Fprint(w, i)
		return err
	})
	if !errors.Is(err, first) || out.String() != "0" {
		t.Errorf("%v, %q", err, out.String())
	}
	full := errors.New("full")
	err = show.InOrder(failing{full}, 3, 3, 100, func(i int, w io.Writer) error {
		_, err := fmt.Fprint(w, i)
		return err
	})
	if !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
