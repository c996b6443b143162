package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"
)

// File is the name and the text of one policy file.
type File struct {
	Name string
	Data []byte
}

// maxFile limits the size of a file, and so the cost of a hostile one.
const maxFile = 512 << 10

// Parse reads policies, group policies, queues and settings (semantics.md 13, semantics.md 12.2): YAML or JSON, any number of
// documents in any number of files, in any order. Its error is a Problems with all problems in all files.
func Parse(files []File) (*Set, error) {
	docs, problems := parse(files)
	if len(problems) > 0 {
		return nil, problems
	}
	c := contentOf(docs)
	if problems = c.tooManyBudgets(""); len(problems) > 0 {
		return nil, problems
	}
	return build(c), nil
}

// document is one resource, with the positions of its fields.
type document struct {
	*decoder
	name     string // path of its name
	spec     string // path of its content: "spec", or "" for the document itself
	policy   *namedPolicy
	group    *namedGroup
	queue    *queueSpec
	budget   *namedBudget
	settings *settingsSpec
}

// parse reads the documents of all files.
func parse(files []File) ([]document, Problems) {
	var docs []document
	var problems Problems
	known := schema{}
	for _, file := range files {
		for root := range roots(file, &problems) {
			d := document{decoder: newDecoder(file.Name, &problems, known)}
			d.resource(root)
			docs = append(docs, d)
		}
	}
	namedTwice(docs)
	problems.sort()
	return docs, problems
}

// roots yields the non-empty documents of a file.
func roots(file File, problems *Problems) iter.Seq[*yaml.Node] {
	report := func(line, column int, f fault) {
		*problems = append(*problems, Problem{File: file.Name, Line: line, Column: column, Code: f.code, Message: f.message, Fix: f.fix})
	}
	return func(yield func(*yaml.Node) bool) {
		if len(file.Data) > maxFile {
			report(1, 1, fault{codeTooBig, fmt.Sprintf("bigger than %d bytes", maxFile), "split the file"})
			return
		}
		if bytes.HasPrefix(file.Data, []byte("\x1f\x8b")) {
			report(1, 1, fault{codeSyntax, "the file is compressed with gzip, as recordings are", "give a file of policies"})
			return
		}
		loader, err := yaml.NewLoader(bytes.NewReader(file.Data), yaml.WithPlugin(limits{}))
		for err == nil {
			var root yaml.Node
			if err = loader.Load(&root); err != nil {
				break
			}
			if len(root.Content) == 0 || root.Content[0].ShortTag() == "!!null" {
				continue
			}
			if !yield(root.Content[0]) {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		var at *yaml.LoadError
		switch {
		case !errors.As(err, &at):
			report(1, 1, fault{codeSyntax, err.Error(), "write YAML"})
		case at.Message == tooDeep{}.Error():
			report(at.Mark.Line, at.Mark.Column, fault{codeTooBig, at.Message, "policies do not need such depth"})
		default:
			message, fix := BadYAML(file.Data, at)
			report(max(at.Mark.Line, 1), max(at.Mark.Column, 1), fault{codeSyntax, message, fix})
		}
	}
}

// BadYAML says what is not YAML in a text, and how to mend it.
func BadYAML(text []byte, at *yaml.LoadError) (message, fix string) {
	lines := bytes.Split(text, []byte("\n"))
	if line, column := at.Mark.Line-1, at.Mark.Column-1; line >= 0 && line < len(lines) && column >= 0 {
		if runes := []rune(string(lines[line])); column < len(runes) && runes[column] == '\t' {
			return "a tab", "write spaces: YAML indents by spaces only; the rest of the file was not read"
		}
	}
	return at.Message, "correct the YAML; the rest of the file was not read"
}

// limits are those of the YAML loader. Aliases are rejected, never expanded.
type limits struct{}

func (limits) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > maxDepth {
		return tooDeep{}
	}
	return nil
}

func (limits) CheckAlias(int, int) error { return nil }

type tooDeep struct{}

func (tooDeep) Error() string { return fmt.Sprintf("nested deeper than %d", maxDepth) }

// versions are those that each kind may have, the usual one first.
var versions = map[string][]string{
	"RetryPolicy":   {apiVersion, apiVersionFlat},
	KindGroup:       {apiVersionGroup},
	"Queue":         {apiVersion, apiVersionFlat},
	KindBudget:      {apiVersionGroup},
	"RetrySettings": {apiVersion},
}

// resource reads a document by its kind.
func (d *document) resource(root *yaml.Node) {
	kind, kindAt := scalarAt(root, "kind")
	version, versionAt := scalarAt(root, "apiVersion")
	d.at[""], d.at["kind"], d.at["apiVersion"] = root, kindAt, versionAt
	if root.Kind != yaml.MappingNode {
		d.wrongType(root, "", "a mapping with a kind")
		return
	}
	known := versions[kind]
	switch _, flatName := scalarAt(root, "name"); {
	case known == nil:
		f := unknownValue("kind", kind, []string{"RetryPolicy", "GroupPolicy", "Queue", "RetryBudget", "RetrySettings"})
		f.code = codeKind
		if kind == "" {
			f.message = "no kind"
		}
		d.report(d.nearest("kind"), "kind", f)
		return
	case version == "" && (kind == "Queue" || kind == "RetrySettings"): // they may do without
	case version == "": // and the rest is read, so that its problems show too
		d.report(root, "apiVersion", fault{codeAPIVersion, "no apiVersion", "use " + oneOf(known)})
		if kind == "RetryPolicy" && flatName != nil {
			version = apiVersionFlat
		}
	case !slices.Contains(known, version):
		d.report(versionAt, "apiVersion", fault{codeAPIVersion, "unsupported apiVersion " + shown(version), "use " + oneOf(known)})
		return
	}
	switch kind {
	case "RetryPolicy":
		if version == apiVersionFlat {
			file := flatFile{}
			d.value(root, "", reflect.ValueOf(&file).Elem())
			p := file.policy()
			d.name, d.policy = "name", &p
			return
		}
		file := policyFile{}
		d.value(root, "", reflect.ValueOf(&file).Elem())
		d.name, d.spec, d.policy = "metadata.name", "spec", &namedPolicy{file.Metadata.Name, file.Spec}
	case KindGroup:
		file := groupFile{}
		d.value(root, "", reflect.ValueOf(&file).Elem())
		d.name, d.spec, d.group = "metadata.name", "spec", &namedGroup{file.Metadata.Name, file.Spec}
	case "Queue":
		file := queueFile{}
		d.value(root, "", reflect.ValueOf(&file).Elem())
		d.name, d.queue = "name", &file.queueSpec
	case KindBudget:
		file := budgetFile{}
		d.value(root, "", reflect.ValueOf(&file).Elem())
		d.name, d.spec, d.budget = "metadata.name", "spec", &namedBudget{file.Metadata.Name, file.Spec}
	case "RetrySettings":
		file := settingsFile{}
		d.value(root, "", reflect.ValueOf(&file).Elem())
		d.name, d.spec, d.settings = "kind", "spec", &file.Spec
	}
}

// scalarAt returns the scalar of a key of a mapping, and its node.
func scalarAt(root *yaml.Node, key string) (string, *yaml.Node) {
	if root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i].Value == key && root.Content[i+1].Kind == yaml.ScalarNode {
				return root.Content[i+1].Value, root.Content[i+1]
			}
		}
	}
	return "", nil
}

// namedTwice reports duplicate policies, group policies, queues and retry budgets, and a second settings document.
func namedTwice(docs []document) {
	first := make(map[string]*document)
	for i := range docs {
		d := &docs[i]
		key := ""
		switch {
		case d.policy != nil && d.policy.Name != "":
			key = "policy " + string(d.policy.Name)
		case d.group != nil && d.group.Name != "":
			key = "group policy " + string(d.group.Name)
		case d.queue != nil && d.queue.Name != "":
			key = "queue " + string(d.queue.Name)
		case d.budget != nil && d.budget.Name != "":
			key = "retry budget " + string(d.budget.Name)
		case d.settings != nil:
			key = "RetrySettings"
		default:
			continue
		}
		if other := first[key]; other != nil {
			at := other.nearest(other.name)
			d.report(d.nearest(d.name), d.name, fault{
				codeDuplicateName, fmt.Sprintf("duplicate %s (first in %s:%d:%d)", key, other.file, at.Line, at.Column), "keep one of them",
			})
			continue
		}
		first[key] = d
	}
}

// contentOf collects the content of documents without problems.
func contentOf(docs []document) *content {
	c := &content{}
	known := schema{}
	for i := range docs {
		switch d := &docs[i]; {
		case d.policy != nil:
			c.policies = append(c.policies, newPolicy(d.policy, known))
		case d.group != nil:
			c.groups = append(c.groups, newGroup(d.group, known))
		case d.queue != nil:
			c.bindings = append(c.bindings, newBinding(d.queue, known))
		case d.budget != nil:
			c.budgets = append(c.budgets, newBudget(d.budget, known))
		case d.settings != nil:
			c.settings = *d.settings
		}
	}
	return c
}
