package policyfile

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// LoadDir reads the policy files in a directory, not in subdirectories: *.yaml, *.yml and *.json, sorted by name,
// except hidden files and policy tests (*_test.yaml). It is the only I/O of this package, and separate from Parse.
func LoadDir(fsys fs.FS) ([]File, error) {
	entries, err := fs.ReadDir(fsys, ".") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("list policy files: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || !IsPolicies(e.Name()) {
			continue
		}
		// Of a link, what it leads to counts. To open a named pipe would block.
		info, err := fs.Stat(fsys, e.Name())
		switch {
		case err != nil:
			return nil, fmt.Errorf("read policy file: %w", err)
		case info.Mode().IsRegular():
			names = append(names, e.Name())
		case !info.IsDir():
			return nil, fmt.Errorf("read policy file %s: it is no regular file, but %s: remove it", e.Name(), kindOfFile(info.Mode()))
		}
	}
	return LoadFiles(fsys, names...)
}

func kindOfFile(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.String()
}

// IsPolicies says whether LoadDir reads files of this name.
func IsPolicies(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".") && !IsTest(name)
	}
	return false
}

// IsTest reports whether a file name is that of policy tests rather than policies.
func IsTest(name string) bool {
	return strings.HasSuffix(name, "_test.yaml") || strings.HasSuffix(name, "_test.yml")
}

// LoadFiles reads policy files by name.
func LoadFiles(fsys fs.FS, names ...string) ([]File, error) {
	files := make([]File, 0, len(names))
	for _, name := range names {
		data, err := readFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read policy file: %w", err)
		}
		files = append(files, File{Name: name, Data: data})
	}
	return files, nil
}

// readFile reads at most one byte more than Parse accepts.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
