package show

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
)

// InOrder makes n parts of an output, some at once, and prints them as if they were made one after the other. The first
// that has not ended writes through. What the others write is kept, up to so many bytes of all of them; then they wait.
// It returns the error of the first part that failed, after which nothing is printed.
func InOrder(w io.Writer, n, atOnce, keep int, do func(i int, w io.Writer) error) error {
	o := &inOrder{w: w, room: keep, kept: make([][][]byte, n), ended: make([]func() error, n)}
	o.changed.L = &o.mu
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			o.end(i, do(i, part{o, i}))
			return nil
		})
	}
	_ = group.Wait()
	return o.err
}

type inOrder struct {
	mu      sync.Mutex
	changed sync.Cond
	w       io.Writer
	first   int            // the first part that has not ended
	kept    [][][]byte     // what later parts wrote
	room    int            // bytes that may still be kept
	ended   []func() error // of a part that has ended, its error
	err     error
}

type part struct {
	*inOrder
	i int
}

// errBehind stops the parts after one that failed.
var errBehind = errors.New("an earlier part of the output failed")

func (p part) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.i > p.first && p.err == nil && len(b) > p.room {
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return 0, errBehind
	case p.i == p.first:
		return p.w.Write(b)
	}
	p.kept[p.i] = append(p.kept[p.i], bytes.Clone(b))
	p.room -= len(b)
	return len(b), nil
}

// end ends a part. If it was the first, the next one that has not ended takes its place.
func (o *inOrder) end(i int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.changed.Broadcast()
	for o.ended[i] = func() error { return err }; o.err == nil && o.first < len(o.ended) && o.ended[o.first] != nil; {
		if o.err = o.ended[o.first](); o.err != nil {
			return
		}
		if o.first++; o.first < len(o.kept) {
			for _, b := range o.kept[o.first] {
				if _, o.err = o.w.Write(b); o.err != nil {
					return
				}
				o.room += len(b)
			}
			o.kept[o.first] = nil
		}
	}
}
