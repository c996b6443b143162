// Package storage opens the storage of checkpoints by URL: a directory, an S3 bucket,
// or memory. Every write is atomic and durable.
//
// It does not interpret the objects; internal/checkpoint does.
package storage
