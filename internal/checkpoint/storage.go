package checkpoint

import (
	"context"
	"io"
	"time"
)

// Storage holds objects by key. Package storage implements it.
//
// Every read and listing sees all earlier writes and deletions.
type Storage interface {
	// List returns all objects whose keys begin with prefix. On fs.ErrNotExist the
	// caller lists again: an object was deleted meanwhile.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Read opens an object. It returns fs.ErrNotExist if there is none.
	Read(ctx context.Context, key string) (io.ReadCloser, error)
	// Write stores size bytes as an object, durably and atomically.
	Write(ctx context.Context, key string, content io.Reader, size int64) error
	// Delete removes an object. It may return fs.ErrNotExist if there is none.
	Delete(ctx context.Context, key string) error
}

// Object is one entry of a listing.
type Object struct {
	Key      string
	Size     int64
	Modified time.Time // by the storage's clock
}
