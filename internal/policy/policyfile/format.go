package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Format returns a policy file in one layout: two spaces for each level, lists within their field, one empty line at most, documents with
// --- between them. Order, style and comments stay. It returns an error and nothing else if the file is no YAML, or if a value or a
// comment would not survive. It does not check that the file has policies.
func Format(f File) ([]byte, error) {
	documents, err := decodeAll(f.Data)
	if at := (*yaml.LoadError)(nil); errors.As(err, &at) {
		message, fix := BadYAML(f.Data, at)
		return nil, Problems{{File: f.Name, Line: max(at.Mark.Line, 1), Column: max(at.Mark.Column, 1), Code: codeSyntax, Message: message, Fix: fix}}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	for _, kept := range []bool{true, false} { // empty lines are kept, if they are no part of a value
		out, err := layOut(f.Data, kept)
		if err != nil {
			continue
		}
		if after, err := decodeAll(out); err == nil && slices.EqualFunc(documents, after, sameNode) && slices.Equal(commentsOf(documents), commentsOf(after)) {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%s: its layout cannot be changed without changing a value or a comment", f.Name)
}

// emptyLine stands for an empty line: the YAML library keeps comments only.
const emptyLine = "#\x7e\x7erefloat empty line"

func layOut(data []byte, keepEmpty bool) ([]byte, error) {
	var marked strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) != "" {
			marked.WriteString(line)
		} else if keepEmpty {
			marked.WriteString(emptyLine + "\n")
		}
	}
	if !keepEmpty {
		marked.Reset()
		marked.Write(data)
	}
	documents, err := decodeAll([]byte(marked.String()))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i, d := range documents {
		if i > 0 {
			b.WriteString("---\n")
		}
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		enc.CompactSeqIndent()
		if err := errors.Join(enc.Encode(d), enc.Close()); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	empty := true // none at the beginning
	for line := range strings.Lines(b.String()) {
		if blank := strings.TrimSpace(line) == "" || strings.TrimSpace(line) == emptyLine; !blank {
			out.WriteString(line)
			empty = false
		} else if !empty {
			out.WriteString("\n")
			empty = true
		}
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n'), nil
}

func decodeAll(data []byte) (documents []*yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var d yaml.Node
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		documents = append(documents, &d)
	}
}

// sameNode reports whether two nodes have the same values.
func sameNode(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && a.Anchor == b.Anchor && slices.EqualFunc(a.Content, b.Content, sameNode)
}

// commentsOf returns the lines of all comments, sorted.
func commentsOf(nodes []*yaml.Node) (lines []string) {
	for _, n := range nodes {
		for _, c := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			for line := range strings.Lines(c) {
				if line = strings.TrimSpace(line); line != "" {
					lines = append(lines, line)
				}
			}
		}
		lines = append(lines, commentsOf(n.Content)...)
	}
	slices.Sort(lines)
	return lines
}
