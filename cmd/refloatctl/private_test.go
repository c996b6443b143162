package main

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// TestPrivate: others on this machine cannot look into the directories that we make: they hold what users' containers wrote.
func TestPrivate(t *testing.T) {
	t.Parallel()
	data, dir := drainedData(t), t.TempDir()
	ctl(t, "archive", "create", filepath.Join(dir, "archive"), "--data", data, "--partition", "0").exits(t, exitFine)
	n := 0
	for _, top := range []string{data, dir} {
		if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || path == top {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if n++; info.Mode().Perm()&0o007 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n < 10 {
		t.Errorf("%d directories: hardly any", n)
	}
}
