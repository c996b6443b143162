package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// A running `up` is the only writer of its events log, so `feed --data` leaves recordings in an inbox, a directory
// that `up` watches. It feeds each, and deletes it. One that it cannot feed gets the suffix .refused, and a file
// with the reason beside it.
const (
	inboxEvery   = 500 * time.Millisecond
	inboxRefused = ".refused"
	inboxReason  = ".reason"
)

// watchInbox feeds the recordings of the inbox until ctx ends.
func (n *node) watchInbox(ctx context.Context, fed <-chan struct{}) error {
	select { // one feed at a time
	case <-fed:
	case <-ctx.Done():
		return nil
	}
	inbox := n.Data.Inbox()
	if err := os.MkdirAll(inbox, 0o750); err != nil {
		return fmt.Errorf("create the inbox of recordings: %w", err)
	}
	stuck := map[string]bool{} // what was fed or refused, and could not be removed
	unreadable := false
	for ctx.Err() == nil {
		entries, err := os.ReadDir(inbox)
		if err != nil && !unreadable {
			n.Log.Warn("inbox of recordings cannot be read", slog.Any("error", err))
		}
		unreadable = err != nil
		for _, e := range entries {
			file := filepath.Join(inbox, e.Name())
			if !isRecording(e) || stuck[file] || ctx.Err() != nil {
				continue
			}
			if err := n.feedFromInbox(ctx, file); err != nil {
				stuck[file] = true
				n.Log.Warn("recording cannot be removed from the inbox: it is not looked at again", slog.String("file", file), slog.Any("error", err))
			}
		}
		_ = eventlog.Sleep(ctx, inboxEvery)
	}
	return nil
}

// isRecording reports whether a file in the inbox is to be fed. A copy in progress begins with a dot.
func isRecording(e os.DirEntry) bool {
	return e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".gz")
}

// feedFromInbox feeds a recording and removes it. Its error says that it is still there.
func (n *node) feedFromInbox(ctx context.Context, file string) error {
	messages, err := checkFeed(file, n.feedLog.Partitions())
	written := 0
	if err == nil {
		f := Feed{File: file, Log: n.feedLog, Now: n.Now}
		written, err = f.Run(ctx)
	}
	switch {
	case ctx.Err() != nil: // the next process goes on
		return nil
	case errors.Is(err, os.ErrNotExist): // its feed was interrupted
		return nil
	case err != nil:
		n.Log.Warn("recording is refused", slog.String("file", file), slog.Any("error", err))
		return errors.Join(os.WriteFile(file+inboxReason, []byte(err.Error()), 0o644), os.Rename(file, file+inboxRefused))
	}
	n.Log.Info("feed complete", slog.String("file", file), slog.Int("written", written), slog.Int("already_there", messages-written))
	// A reason that is left from another recording of that name would be taken for this one's.
	return errors.Join(removed(file+inboxReason), removed(file))
}

// removed removes a file, which may be gone already.
func removed(file string) error {
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// checkFeed reads a whole recording before anything of it is written.
func checkFeed(file string, partitions int) (messages int, err error) {
	messages, needed, err := Survey(file)
	if err == nil && needed > partitions {
		err = fmt.Errorf("%s needs %d partitions, the log has %d, which cannot be changed once it has events: use a new data directory, or, if it has none yet, stop what runs on it and start `refloatctl up --feed %s`", file, needed, partitions, file)
	}
	return messages, err
}

// FeedData writes a recording into a data directory. If an `up` runs on it, that does so, and FeedData waits until it
// has. It returns how many messages the recording has, and how many were new, or -1 if only `up` knows.
func FeedData(ctx context.Context, d Dir, feed Feed) (total, written int, err error) {
	total, needed, err := Survey(feed.File)
	if err != nil {
		return 0, 0, err
	}
	written, err = d.feed(ctx, feed, needed)
	if !errors.Is(err, eventlog.ErrLocked) {
		return total, written, err
	}
	if feed.Pace > 0 {
		return 0, 0, fmt.Errorf("%w; what runs there feeds as fast as possible: leave out --pace, or stop it first", err)
	}
	if _, missing := os.Stat(d.Inbox()); missing != nil {
		return 0, 0, fmt.Errorf("%w; or start it with `refloatctl up --feed %s`", err, feed.File)
	}
	left, err := leaveInInbox(feed.File, d.Inbox())
	if err != nil {
		return 0, 0, err
	}
	for {
		if _, err := os.Stat(left); errors.Is(err, os.ErrNotExist) {
			reason, err := os.ReadFile(left + inboxReason)
			if err != nil {
				return total, -1, nil //nolint:nilerr // it was not refused
			}
			_ = errors.Join(os.Remove(left+inboxReason), os.Remove(left+inboxRefused))
			return 0, 0, fmt.Errorf("the running `up` refused the recording: %s", reason)
		}
		// If `up` ended meanwhile, the log is free.
		if written, err := d.feed(ctx, feed, needed); !errors.Is(err, eventlog.ErrLocked) {
			return total, written, errors.Join(err, removed(left))
		}
		if eventlog.Sleep(ctx, inboxEvery) != nil {
			return 0, 0, errors.Join(fmt.Errorf("interrupted while the process that runs on %s feeds it, which may have fed a part; feed it again to complete it: %w", d, ctx.Err()), removed(left))
		}
	}
}

// feed writes a recording into an events log that no process has open.
func (d Dir) feed(ctx context.Context, feed Feed, partitions int) (written int, err error) {
	log, err := openLog(d.Events(), partitions, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if _, err := checkFeed(feed.File, log.Partitions()); err != nil {
		return 0, err
	}
	feed.Log = log
	return feed.Run(ctx)
}

// leaveInInbox copies a recording into an inbox, where it appears at once, under its own name: positions in the log
// name the recording.
func leaveInInbox(file, inbox string) (string, error) {
	to := filepath.Join(inbox, filepath.Base(file))
	if !strings.HasSuffix(to, ".gz") || strings.HasPrefix(filepath.Base(to), ".") {
		return "", fmt.Errorf("%s: `up` takes recordings whose name ends in .gz and does not begin with a dot: rename it", file)
	}
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.CreateTemp(inbox, ".feed-*")
	if err != nil {
		return "", fmt.Errorf("leave the recording to the running `up`: %w", err)
	}
	defer func() { _ = os.Remove(out.Name()) }()
	_, err = io.Copy(out, in)
	// The other process may belong to another user, and the machine may crash.
	if err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close()); err == nil {
		err = os.Link(out.Name(), to) // unlike a rename, it fails if another feed left one of this name
	}
	if errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("another recording named %s is being fed: wait until it is", filepath.Base(file))
	}
	if err != nil {
		return "", fmt.Errorf("leave the recording to the running `up`: %w", err)
	}
	return to, nil
}
