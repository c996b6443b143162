// Package protection judges nodes and causes by how runs end: it finds nodes that fail the jobs of several queues, which
// retries are to avoid for a while (ADR 23), and failure categories whose retries breakers are to hold (ADR 27). It is pure:
// what it says follows from run ends, settings and a time.
package protection
