// Package query answers what operators ask about jobs, decisions, groups and policies.
// refloatctl, the API and the web page show its answers, so all of them say the same.
//
// An answer is a plain struct. Its JSON form is what `refloatctl … -o json` prints: fields
// keep their meaning, and new ones may be added. What only people read, and what an answer
// was made from, is in fields without a JSON form.
//
// Names, messages and ids in answers come from users and may hold anything: escape them
// where they are shown.
package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policylog"
)

// Source is what questions are answered from. Jobs is required.
type Source struct {
	// Jobs calls read with queries that see one snapshot of the job database.
	Jobs func(ctx context.Context, read func(jobdb.Queries) error) error
	// Logs opens the logs during a call; their readers end at the end of each log. nil: they cannot be read.
	Logs func(ctx context.Context, use func(audit.Logs) error) error
	// Policies opens the store of the policies log during a call. nil: it cannot be read.
	Policies func(ctx context.Context, use func(*policylog.Store) error) error
	// Partitions returns what this process knows of the partitions that it decides; nil: nothing.
	Partitions func(ctx context.Context) ([]Partition, error)
	// Whole bounds the questions that read whole logs: WhatIf, Verify, JobAt, and those about a job that was pruned; nil: any
	// number are answered at once.
	Whole *Gate
	// Progress is notified of what takes long; nil: nobody is.
	Progress func(text string)

	limited func(context.Context) bool // the caller may see only some queues; nil: none is limited
}

// ErrAllQueues reports a question about all queues, such as one that is answered from whole logs, by a caller who may see only some.
var ErrAllQueues = errors.New("the answer is about all queues: ask somebody who may see the jobs of all queues")

// Limited returns a source that answers from what a caller may see. Queues returns which queues these are, by the context of
// a question, or all.
func (s Source) Limited(queues func(context.Context) (some []string, all bool)) Source {
	s.limited = func(ctx context.Context) bool { _, all := queues(ctx); return !all }
	if jobs := s.Jobs; jobs != nil {
		s.Jobs = func(ctx context.Context, read func(jobdb.Queries) error) error {
			some, all := queues(ctx)
			if all {
				return jobs(ctx, read)
			}
			return jobs(ctx, func(q jobdb.Queries) error { return read(jobdb.Within(q, some)) })
		}
	}
	if logs := s.Logs; logs != nil {
		s.Logs = func(ctx context.Context, use func(audit.Logs) error) error {
			if s.limited(ctx) {
				return ErrAllQueues
			}
			return logs(ctx, use)
		}
	}
	return s
}

func (s *Source) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// Invalid is a question that cannot be asked.
type Invalid struct {
	Param string // which part of the question is wrong; "": all of it
	Err   error
}

func (e *Invalid) Error() string {
	if e.Param == "" {
		return e.Err.Error()
	}
	return e.Param + ": " + e.Err.Error()
}

func (e *Invalid) Unwrap() error { return e.Err }

func invalid(param, format string, args ...any) error {
	return &Invalid{Param: param, Err: fmt.Errorf(format, args...)}
}

// ErrNoLogs and ErrNoPolicies report a question whose answer needs what the source does not have.
var (
	ErrNoLogs     = errors.New("the answer is derived from the logs, which are not read here")
	ErrNoPolicies = errors.New("the answer needs the policies log, which is not read here")
)

// NotFound reports that something does not exist.
type NotFound struct {
	What string // such as: job 01h…
	// Text says it in full, in one or more lines.
	Text string
	// Pruned are the partitions that have pruned jobs, if it may be one of these.
	Pruned []jobdb.PartitionPositions
}

func (e *NotFound) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return e.What + " is not in the job database" + strings.TrimSuffix("\n"+PrunedText(e.Pruned), "\n")
}

// TimeText formats Unix nanoseconds; "" for 0.
func TimeText(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
