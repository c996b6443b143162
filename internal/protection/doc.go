// Package protection judges nodes by how runs end there: it finds those that fail the jobs of several queues, which
// retries are to avoid for a while (ADR 23). It is pure: what it says follows from run ends, settings and a time.
package protection
