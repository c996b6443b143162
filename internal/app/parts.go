package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// parts are the running parts of something that starts and stops as a whole. They are started in the order in which
// they use each other. When one of them fails, or the context ends, all are told to stop at once; then each is
// awaited, and each resource closed, in the reverse order. So nothing is closed while something that was started
// after it still runs, also if the start itself fails.
type parts struct {
	parent context.Context
	ctx    context.Context // of the running parts
	stop   context.CancelCauseFunc
	list   []*part
}

// part is a goroutine (done) or a resource (close).
type part struct {
	name  string
	done  chan struct{}
	err   error // once done
	close func() error
}

// stopWithin is how long a part may take to stop.
const stopWithin = time.Minute

// errEnded ends the parts without an error; errStuck means that some of them still run.
var (
	errEnded = errors.New("ended")
	errStuck = errors.New("did not stop in time")
)

func newParts(ctx context.Context) *parts {
	p := &parts{parent: ctx}
	p.ctx, p.stop = context.WithCancelCause(ctx)
	return p
}

// run starts a part that works until its context ends. If it returns an error, all parts stop.
func (p *parts) run(name string, work func(ctx context.Context) error) {
	it := &part{name: name, done: make(chan struct{})}
	p.list = append(p.list, it)
	go func() {
		defer close(it.done)
		if it.err = work(p.ctx); it.err != nil {
			p.stop(it.err)
		}
	}()
}

// closes adds a resource that the parts started from now on use.
func (p *parts) closes(name string, closer func() error) {
	p.list = append(p.list, &part{name: name, close: closer})
}

// wait returns when everything has stopped: with the error that started was called with, or the first error of a
// part, and with those of closing. The end of the context is no error.
func (p *parts) wait(started error) error {
	if started != nil {
		p.stop(started)
	}
	<-p.ctx.Done()
	err := context.Cause(p.ctx)
	if p.isEnd(err) {
		err = nil
	}
	for _, it := range slices.Backward(p.list) {
		if it.close != nil {
			err = errors.Join(err, it.close())
			continue
		}
		select {
		case <-it.done:
			if err == nil && !p.isEnd(it.err) {
				err = it.err
			}
		case <-time.After(stopWithin):
			return errors.Join(err, fmt.Errorf("%s %w (%v)", it.name, errStuck, stopWithin))
		}
	}
	return err
}

// isEnd reports whether an error only says that the parts were told to stop.
func (p *parts) isEnd(err error) bool {
	return errors.Is(err, errEnded) || errors.Is(err, context.Canceled) || p.parent.Err() != nil && errors.Is(err, context.Cause(p.parent))
}
