// Package jobs serves what operators ask about jobs, runs, decisions, groups and queues
// over gRPC and REST (pb/jobs.proto), on the port of the policy API. The answers are those
// of internal/query, and so those of `refloatctl … -o json`.
//
// Nothing that a client asks is unbounded: a page has at most 1000 rows, a question has a
// timeout, and so many are answered at once (internal/api/admit.go). A stream of decisions
// keeps a position, not a backlog: a client that falls too far behind is dropped.
package jobs
