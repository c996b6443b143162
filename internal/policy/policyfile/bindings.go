package policyfile

import (
	"fmt"
	"slices"
)

// Binding is which policies a queue names, in order.
type Binding struct {
	Queue    string
	Policies []string
}

// Bindings lists the queues that name policies, by their names.
func (s *Set) Bindings() []Binding {
	var all []Binding
	for _, q := range s.content.bindings {
		if len(q.RetryPolicies) == 0 {
			continue
		}
		b := Binding{Queue: string(q.Name)}
		for _, name := range q.RetryPolicies {
			b.Policies = append(b.Policies, string(name))
		}
		all = append(all, b)
	}
	return all
}

// Bound returns the set in which queues name these policies and no others, each once,
// and say what else they said. A queue that named policies and now says nothing is
// gone. What no queue can say is left out, and named.
func (s *Set) Bound(bindings []Binding) (bound *Set, refused []string) {
	c, known := s.content.clone(), schema{}
	at := make(map[queueName]int, len(c.bindings))
	lists := make([][]policyName, len(c.bindings)) // what each of them is to name
	for i, b := range c.bindings {
		at[b.Name] = i
	}
	for _, b := range bindings {
		var list []policyName
		for _, name := range b.Policies {
			var n policyName
			if f := n.parse(name); f != (fault{}) {
				refused = append(refused, fmt.Sprintf("Queue %.100s: policy %s: %s", b.Queue, shown(name), f.message))
			} else if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
		if len(list) == 0 {
			continue
		}
		var name queueName
		if f := name.parse(b.Queue); f != (fault{}) {
			refused = append(refused, fmt.Sprintf("Queue %s: %s", shown(b.Queue), f.message))
			continue
		}
		i, ok := at[name]
		if !ok {
			i, at[name] = len(c.bindings), len(c.bindings)
			c.bindings, lists = append(c.bindings, newBinding(&queueSpec{Name: name}, known)), append(lists, nil)
		}
		lists[i] = list
	}
	kept := c.bindings[:0]
	for i, b := range c.bindings {
		emptied := len(b.RetryPolicies) > 0 && len(lists[i]) == 0
		if !slices.Equal(b.RetryPolicies, lists[i]) {
			spec := b.queueSpec
			spec.RetryPolicies = lists[i]
			b = newBinding(&spec, known)
		}
		if !emptied || b.Mode != noMode || b.Killed || b.PausedUntil != nil {
			kept = append(kept, b)
		}
	}
	c.bindings = kept
	return build(c), refused
}
