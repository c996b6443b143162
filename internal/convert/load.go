package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// File is one input: its name, for notes, and its text: YAML or JSON, any number of documents.
type File struct {
	Name string
	Data []byte
}

const (
	maxFile  = 16 << 20 // of kubectl get of a whole namespace
	maxDepth = 100
	maxNodes = 1_000_000 // of a document with its aliases expanded
)

// roots returns the documents of a file that are not empty.
func (c *conversion) roots(f File) (roots []*yaml.Node) {
	report := func(line, column int, why, fix string) {
		c.notes = append(c.notes, Note{Kind: Error, File: f.Name, Line: max(line, 1), Column: max(column, 1), Why: why, Fix: fix})
	}
	if len(f.Data) > maxFile {
		report(1, 1, fmt.Sprintf("bigger than %d MiB", maxFile>>20), "split the file")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(f.Data), yaml.WithPlugin(limits{}))
	for err == nil {
		var root yaml.Node
		if err = loader.Load(&root); err != nil {
			break
		}
		if len(root.Content) > 0 && root.Content[0].ShortTag() != "!!null" {
			roots = append(roots, root.Content[0])
		}
	}
	var at *yaml.LoadError
	switch {
	case errors.Is(err, io.EOF):
	case errors.As(err, &at):
		why, fix := policyfile.BadYAML(f.Data, at)
		report(at.Mark.Line, at.Mark.Column, why, fix)
	default:
		report(1, 1, err.Error(), "write YAML")
	}
	return roots
}

// limits are those of the YAML loader. Aliases are counted when they are followed.
type limits struct{}

func (limits) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	return nil
}

func (limits) CheckAlias(int, int) error { return nil }
