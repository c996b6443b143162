package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/checkpoint"
)

// memory keeps objects while the process runs.
type memory struct {
	now     func() time.Time
	mu      sync.Mutex
	objects map[string]object
}

type object struct {
	content  []byte
	modified time.Time
}

func (m *memory) List(_ context.Context, prefix string) ([]checkpoint.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []checkpoint.Object
	for key, o := range m.objects {
		if strings.HasPrefix(key, prefix) {
			found = append(found, checkpoint.Object{Key: key, Size: int64(len(o.content)), Modified: o.modified})
		}
	}
	return found, nil
}

func (m *memory) Read(_ context.Context, key string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(o.content)), nil
}

func (m *memory) Write(ctx context.Context, key string, content io.Reader, size int64) error {
	b, err := io.ReadAll(exactly(content, size))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.objects[key] = object{b, m.now()}
	return nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
