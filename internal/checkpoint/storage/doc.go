// Package storage opens the storage of checkpoints by its URL: a directory, an
// S3 bucket, or memory. Every write is atomic and durable.
//
// It does not interpret the objects; internal/checkpoint does.
package storage
