package pulsarlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	pulsarlogging "github.com/apache/pulsar-client-go/pulsar/log"
)

// clientLog forwards the client's warnings and errors, and watches them: the client
// reports only in its log that it skips a message that it cannot decode.
type clientLog struct {
	cluster *Cluster
	out     *slog.Logger
	source  *source   // the source that the line is about, if known
	message messageID // the message that the line is about, if any
	reason  string    // why, if the line has an error
}

var (
	_ pulsarlogging.Logger = (*clientLog)(nil)
	_ pulsarlogging.Entry  = (*clientLog)(nil)
)

// messageID is the form of an id in the client's log.
type messageID interface {
	GetLedgerId() uint64
	GetEntryId() uint64
}

func (l *clientLog) SubLogger(f pulsarlogging.Fields) pulsarlogging.Logger {
	sub := *l
	if name, ok := f[fieldOfReader].(string); ok {
		if s, ok := l.cluster.sources.Load(name); ok {
			sub.source = s.(*source)
		}
	}
	sub.out = l.out.With(pairs(f)...)
	return &sub
}

func pairs(f pulsarlogging.Fields) []any {
	var out []any
	for _, k := range slices.Sorted(maps.Keys(f)) {
		out = append(out, slog.Any(k, f[k]))
	}
	return out
}

// WithFields implements the client's interface, as do the methods below.
func (l *clientLog) WithFields(f pulsarlogging.Fields) pulsarlogging.Entry {
	with := *l
	with.out = l.out.With(pairs(f)...)
	with.message, _ = f[fieldOfMessage].(messageID)
	return &with
}

func (l *clientLog) WithField(name string, value any) pulsarlogging.Entry {
	with := *l
	with.out = l.out.With(slog.Any(name, value))
	return &with
}

func (l *clientLog) WithError(err error) pulsarlogging.Entry {
	with := *l
	with.reason = err.Error() // the error itself prints its stack
	with.out = l.out.With(slog.String("error", with.reason))
	return &with
}

func (l *clientLog) Debug(...any)          {}
func (l *clientLog) Debugf(string, ...any) {}
func (l *clientLog) Info(...any)           {}
func (l *clientLog) Infof(string, ...any)  {}

func (l *clientLog) Warn(args ...any)                 { l.handle(fmt.Sprint(args...)) }
func (l *clientLog) Warnf(format string, args ...any) { l.handle(fmt.Sprintf(format, args...)) }

// Error logs no error of ours: the client retries what fails, or returns the error
// from the call.
func (l *clientLog) Error(args ...any)                 { l.handle(fmt.Sprint(args...)) }
func (l *clientLog) Errorf(format string, args ...any) { l.handle(fmt.Sprintf(format, args...)) }

func (l *clientLog) handle(text string) {
	if l.source != nil {
		switch {
		case discards(text) && l.message != nil:
			at := entryID{int64(l.message.GetLedgerId()), int64(l.message.GetEntryId())}
			l.source.leftOut(at, text)
		default:
			if at, known, ok := misses(text); ok {
				l.source.lostChunk(at, known, text)
			}
		}
	}
	l.cluster.hear(text, l.reason)
	if isOurClosing(text) {
		return
	}
	l.out.LogAttrs(context.Background(), slog.LevelWarn, "pulsar client", slog.String("says", text))
}
