package checkpoint

import (
	"context"
	"io"
	"time"
)

// Storage holds objects by key. Package storage has the implementations.
//
// A finished write or deletion is seen by every later read and listing.
type Storage interface {
	// List returns all objects whose keys begin with prefix. After
	// fs.ErrNotExist the caller lists again: an object went away meanwhile.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Read opens an object; fs.ErrNotExist says that there is none.
	Read(ctx context.Context, key string) (io.ReadCloser, error)
	// Write stores size bytes as an object: all of it, durably, or nothing.
	Write(ctx context.Context, key string, content io.Reader, size int64) error
	// Delete removes an object. It may return fs.ErrNotExist where there is none.
	Delete(ctx context.Context, key string) error
}

// Object is one entry of a listing.
type Object struct {
	Key      string
	Size     int64
	Modified time.Time // by the storage's clock
}
