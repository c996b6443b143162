package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
)

const recordingSuffix = ".jsonl.gz"

// openTarget opens a recording or a log directory for a topic of that name.
func openTarget(out, topic string, partitions int) (target, error) {
	if strings.HasSuffix(out, recordingSuffix) {
		return newFileTarget(out)
	}
	if info, err := os.Stat(out); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: give a recording *%s, or a directory", out, recordingSuffix)
	}
	return newLogTarget(out, topic, partitions)
}

// fileTarget writes a recording.
type fileTarget struct {
	path string
	file *os.File
	out  *bufio.Writer
	w    *recording.Writer
}

func newFileTarget(path string) (*fileTarget, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s already exists: remove it, or choose another", path)
	}
	file, err := os.Create(path + ".partial")
	if err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	return &fileTarget{path: path, file: file, out: out, w: recording.NewWriter(out)}, nil
}

func (t *fileTarget) resume(int) (eventlog.Position, bool, error) {
	return eventlog.Position{}, false, nil
}

func (t *fileTarget) write(p int, m *eventlog.Message) error {
	err := t.w.Write(recording.Entry{Partition: p, Message: *m})
	if err != nil && m.Origin.Recording != "" {
		return fmt.Errorf("%w (the topic contains messages that were fed from recordings: record it into a directory)", err)
	}
	return err
}

// flush does nothing: a recording is durable only when it is complete.
func (t *fileTarget) flush() error { return nil }

// close renames a complete recording to its final name.
func (t *fileTarget) close(complete bool) error {
	err := errors.Join(t.w.Close(), t.out.Flush(), t.file.Sync(), t.file.Close())
	if err != nil || !complete {
		if complete {
			return err
		}
		return fmt.Errorf("messages recorded before the error are in %s", t.file.Name())
	}
	if err := os.Rename(t.file.Name(), t.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(t.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// logTarget writes an exact copy into a log directory.
type logTarget struct {
	name  string // of the topic
	log   *filelog.Log
	batch map[int][]eventlog.Message
}

func newLogTarget(dir, topic string, partitions int) (*logTarget, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: partitions})
	if err != nil {
		return nil, err
	}
	return &logTarget{name: topic, log: log, batch: map[int][]eventlog.Message{}}, nil
}

// resume reads the end of a partition.
func (t *logTarget) resume(p int) (at eventlog.Position, ok bool, err error) {
	end, err := t.log.End(p)
	if err != nil || end == eventlog.Start {
		return at, false, err
	}
	m, err := topiccopy.Last(t.log, p)
	if err != nil {
		return at, false, err
	}
	if m.Origin.Recording != t.name {
		return at, false, fmt.Errorf("the directory contains another topic (%s), not %s: choose another directory", m.Origin.Recording, t.name)
	}
	return m.Origin.Position, true, nil
}

func (t *logTarget) write(p int, m *eventlog.Message) error {
	if t.batch[p] = append(t.batch[p], topiccopy.Wrap(t.name, m)); len(t.batch[p]) < recordChunk {
		return nil
	}
	return t.append(p)
}

func (t *logTarget) append(p int) error {
	err := t.log.Append(p, t.batch[p])
	t.batch[p] = nil // the log keeps the slice until it is written
	return err
}

func (t *logTarget) flush() error {
	for p, batch := range t.batch {
		if len(batch) == 0 {
			continue
		}
		if err := t.append(p); err != nil {
			return err
		}
	}
	return t.log.Flush(context.Background())
}

// close writes the rest, which is useful even after an error.
func (t *logTarget) close(bool) error { return errors.Join(t.flush(), t.log.Close()) }
