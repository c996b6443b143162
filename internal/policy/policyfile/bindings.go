package policyfile

import (
	"fmt"
	"slices"
)

// Binding lists the policies that a queue names, in order.
type Binding struct {
	Queue    string
	Policies []string
}

// Bindings lists the queues that name policies, by name.
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

// Bound returns the set in which queues name exactly these policies, each once, and keep their other fields. A
// queue that named policies and is left without any field is removed. Invalid names are left out and reported.
func (s *Set) Bound(bindings []Binding) (bound *Set, refused []string) {
	c, known := s.content.clone(), schema{}
	at := make(map[queueName]int, len(c.bindings))
	lists := make([][]policyName, len(c.bindings)) // the names for each of them
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
