package pulsarlog

import (
	"errors"
	"testing"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"

	"github.com/refloat/refloat/internal/eventlog"
)

func TestClasses(t *testing.T) {
	t.Parallel()
	admin := new(Cluster).adminClassed
	classes := []error{eventlog.ErrTransient, eventlog.ErrFenced, eventlog.ErrCorrupt, ErrDenied, ErrGone}
	for _, c := range []struct {
		err  error
		want error // nil: no error of those
	}{
		{classed(errors.New("connection error")), eventlog.ErrTransient},
		{classed(errors.New("server error: ServiceNotReady: Topic is temporarily unavailable")), eventlog.ErrTransient},
		{classed(errors.New("AuthorizationError")), ErrDenied},
		{classed(errors.New("server error: TopicNotFound: Topic does not exist")), ErrGone},
		{classed(errors.New("server error: ProducerFenced: Topic has an existing exclusive producer")), eventlog.ErrFenced},
		{classed(errors.New("server error: ProducerBusy: Producer is already connected")), eventlog.ErrFenced},
		{classed(errors.New("server error: InvalidTopicName: x")), nil},
		{admin(errors.New("connection refused")), eventlog.ErrTransient},
		{admin(rest.Error{Code: 503}), eventlog.ErrTransient},
		{admin(rest.Error{Code: 401}), ErrDenied},
		{admin(rest.Error{Code: 404}), ErrGone},
		{admin(rest.Error{Code: 412}), nil},
	} {
		for _, class := range classes {
			if is := errors.Is(c.err, class); is != (c.want != nil && errors.Is(c.want, class)) {
				t.Errorf("%v: is %v: %v", c.err, class, is)
			}
		}
	}
	if classed(nil) != nil {
		t.Error("no error has a class")
	}
}
