package lint

import (
	"bufio"
	"bytes"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Categories are the categories that executors report. If the list has subcategories for a category, the category
// has no others.
type Categories struct{ all map[string][]string }

// ParseCategories reads one category, or category/subcategory, a line; # begins a comment.
func ParseCategories(file policyfile.File) (*Categories, error) {
	c := &Categories{all: map[string][]string{}}
	var problems policyfile.Problems
	lines := bufio.NewScanner(bytes.NewReader(file.Data))
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, sub, both := strings.Cut(text, "/")
		if name == "" || both && sub == "" || !utf8.ValidString(text) {
			problems = append(problems, policyfile.Problem{File: file.Name, Line: n, Column: 1, Code: "RP030", Message: "not a category", Fix: "write category or category/subcategory, one a line"})
			continue
		}
		subs := c.all[name]
		if both {
			subs = append(subs, sub)
		}
		c.all[name] = subs
	}
	if err := lines.Err(); err != nil {
		problems = append(problems, policyfile.Problem{File: file.Name, Line: 1, Column: 1, Code: "RP002", Message: err.Error(), Fix: "write one category a line"})
	}
	if len(c.all) == 0 && len(problems) == 0 {
		problems = append(problems, policyfile.Problem{File: file.Name, Line: 1, Column: 1, Code: "RP038", Message: "the file contains no category", Fix: "write one category a line"})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

func (c *Categories) names() []string { return slices.Sorted(maps.Keys(c.all)) }

// below lists the subcategories of some categories. It is not closed if one of them has no subcategories in the
// list, or is not in the list.
func (c *Categories) below(categories []string) (known []string, closed bool) {
	for _, name := range categories {
		if len(c.all[name]) == 0 {
			return nil, false
		}
		known = append(known, c.all[name]...)
	}
	slices.Sort(known)
	return slices.Compact(known), len(categories) > 0
}
