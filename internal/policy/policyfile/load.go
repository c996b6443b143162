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
		switch path.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !IsTest(e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return LoadFiles(fsys, names...)
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
