package policyfile

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// LoadDir reads the policy files of the top of a directory: *.yaml, *.yml and
// *.json, in the order of their names, without hidden ones and without tests of
// policies (*_test.yaml). It is the only I/O of this package, and apart from Parse.
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

// IsTest says whether a file of this name holds tests of policies, not policies.
func IsTest(name string) bool {
	return strings.HasSuffix(name, "_test.yaml") || strings.HasSuffix(name, "_test.yml")
}

// LoadFiles reads the policy files of these names.
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

// readFile reads no more than shows that a file is too big for Parse.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
