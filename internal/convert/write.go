package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// WriteYAML writes the file that `armadactl submit` reads, one job at a time.
func (s *Submit) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	head := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range [][2]string{{"queue", s.Queue}, {"jobSetId", s.JobSetID}} {
		head.Content = append(head.Content, word(f[0]), word(f[1]))
	}
	if err := encode(&b, head); err != nil {
		return err
	}
	b.WriteString("jobs:")
	if len(s.Jobs) == 0 {
		b.WriteString(" []")
	}
	b.WriteByte('\n')
	for i := range s.Jobs {
		n, err := nodeOf(&s.Jobs[i])
		if err != nil {
			return err
		}
		if err := encode(&b, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{n}}); err != nil {
			return err
		}
		if b.Len() > 64<<10 || i == len(s.Jobs)-1 {
			if _, err := w.Write(b.Bytes()); err != nil {
				return err
			}
			b.Reset()
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func encode(b *bytes.Buffer, n *yaml.Node) error {
	enc := yaml.NewEncoder(b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(n); err != nil {
		return fmt.Errorf("write a job: %w", err)
	}
	return enc.Close()
}

// nodeOf converts a value, by its JSON form, to a node that is easy to read.
func nodeOf(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return next(dec)
}

// next reads the next value. (The YAML parser would read JSON too, and take ten times as long.)
func next(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("write a job: %w", err)
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if t == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for dec.More() {
			item, err := next(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		if _, err := dec.Token(); err != nil {
			return nil, fmt.Errorf("write a job: %w", err)
		}
		if n.Kind == yaml.MappingNode {
			n.Content = withoutEmpty(n.Content)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		return n, nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	case string:
		return word(t), nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// withoutEmpty leaves out what the types of Kubernetes write although it is not set.
func withoutEmpty(content []*yaml.Node) (out []*yaml.Node) {
	for i := 0; i+1 < len(content); i += 2 {
		key, value := content[i], content[i+1]
		if key.Value == "resources" && value.Kind == yaml.MappingNode && len(value.Content) == 0 || value.Tag == "!!null" {
			continue
		}
		out = append(out, key, value)
	}
	return out
}

var plainWord = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@-]*$`)

// word is a text as YAML 1.1 and 1.2 read it alike: armadactl reads the older one, in which yes is a boolean.
func word(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
	words := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
	if plainWord.MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		n.Style = 0
	} else if strings.Contains(s, "\n") && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }) && !strings.HasPrefix(s, " ") && !strings.Contains(s, " \n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}
