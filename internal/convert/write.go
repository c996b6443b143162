package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// WriteYAML writes the file that `armadactl submit` reads, one job at a time.
func (s *Submit) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "queue: %s\njobSetId: %s\njobs:", word(s.Queue), word(s.JobSetID))
	if len(s.Jobs) == 0 {
		b.WriteString(" []")
	}
	b.WriteByte('\n')
	for i := range s.Jobs {
		n, err := nodeOf(&s.Jobs[i])
		if err != nil {
			return err
		}
		b.WriteString("- ")
		n.write(&b, 2)
		if b.Len() > 64<<10 {
			if _, err := b.WriteTo(w); err != nil {
				return err
			}
		}
	}
	_, err := b.WriteTo(w)
	return err
}

// SubmitFiles are the names of the files of submits: jobs.yaml, or jobs-QUEUE.yaml for each of several queues.
func SubmitFiles(submits []Submit) (files []string) {
	if len(submits) == 1 {
		return []string{"jobs.yaml"}
	}
	names := newNames()
	for i := range submits {
		files = append(files, "jobs-"+names.of(submits[i].Queue)+".yaml")
	}
	return files
}

// node is a value of JSON, its fields in order. The YAML encoder would take ten times as long as write, and does not know
// which words the older YAML of armadactl reads as booleans.
type node struct {
	text  string // of a scalar
	block string // of a scalar: the text as lines, if it has several
	list  bool
	keys  []string // of a mapping
	items []*node  // of a mapping or a list
}

// write writes a node; the line has been indented already.
func (n *node) write(b *bytes.Buffer, indent int) {
	switch {
	case n.text != "":
		b.WriteString(n.text + "\n")
		return
	case n.block != "":
		head := "|"
		if !strings.HasSuffix(n.block, "\n") {
			head = "|-"
		}
		b.WriteString(head + "\n")
		for line := range strings.Lines(n.block) {
			if line != "\n" {
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
		return
	case len(n.items) == 0 && n.list:
		b.WriteString("[]\n")
		return
	case len(n.items) == 0:
		b.WriteString("{}\n")
		return
	}
	for i, item := range n.items {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", indent))
		}
		below := indent + 2
		switch nested := len(item.items) > 0; {
		case n.list:
			b.WriteString("- ")
		case nested:
			b.WriteString(word(n.keys[i]) + ":\n")
			if item.list {
				below = indent
			}
			b.WriteString(strings.Repeat(" ", below))
		default:
			b.WriteString(word(n.keys[i]) + ": ")
		}
		item.write(b, below)
	}
}

// nodeOf converts a value by its JSON form.
func nodeOf(v any) (*node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return next(dec)
}

// next reads the next value; nil for null.
func next(dec *json.Decoder) (*node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	switch t := token.(type) {
	case json.Delim:
		n := &node{list: t == '['}
		for dec.More() {
			if err := n.add(dec); err != nil {
				return nil, err
			}
		}
		if _, err := dec.Token(); err != nil {
			return nil, fmt.Errorf("write a job: %w", err)
		}
		return n, nil
	case string:
		if isBlock(t) {
			return &node{block: t}, nil
		}
		return &node{text: word(t)}, nil
	case nil:
		return nil, nil
	}
	return &node{text: fmt.Sprint(token)}, nil // a number or a boolean
}

// add reads an entry, and leaves out what the types of Kubernetes write although it is not set.
func (n *node) add(dec *json.Decoder) error {
	key := ""
	if !n.list {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("write a job: %w", err)
		}
		key, _ = token.(string)
	}
	item, err := next(dec)
	if err != nil {
		return err
	}
	if item == nil || key == "resources" && item.text == "" && item.block == "" && len(item.items) == 0 {
		return nil
	}
	if !n.list {
		n.keys = append(n.keys, key)
	}
	n.items = append(n.items, item)
	return nil
}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@-]*$`)
	// plainLines are lines that a block can hold as they are.
	plainLines = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?(\n+[ ]*[!-~]([ -~]*[!-~])?)+\n?$`)
)

func isBlock(s string) bool { return strings.Contains(s, "\n") && plainLines.MatchString(s) }

// word is a text as YAML 1.1 and 1.2 read it alike: in the older one, yes is a boolean.
func word(s string) string {
	words := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
	if plainWord.MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(fmt.Sprintf("convert: a text that is no JSON: %v", err))
	}
	return escape(strings.TrimSuffix(b.String(), "\n"))
}

// escape writes what YAML does not allow, or what does not show, by number.
func escape(quoted string) string {
	hidden := func(r rune) bool { return r > '~' && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(quoted, hidden) {
		return quoted
	}
	var b strings.Builder
	for _, r := range quoted {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
