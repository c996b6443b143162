package policy

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
	for i := range s.content.Queues {
		q := &s.content.Queues[i]
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
	c := s.content.clone()
	at := make(map[queueName]int, len(c.Queues))
	emptied := make(map[queueName]bool)
	for i := range c.Queues {
		q := &c.Queues[i]
		at[q.Name], emptied[q.Name] = i, len(q.RetryPolicies) > 0
		q.RetryPolicies = nil
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
			i = len(c.Queues)
			c.Queues = append(c.Queues, queueSpec{Name: name})
			at[name] = i
		}
		c.Queues[i].RetryPolicies = list
	}
	c.Queues = slices.DeleteFunc(c.Queues, func(q queueSpec) bool {
		return emptied[q.Name] && len(q.RetryPolicies) == 0 && q.Mode == noMode && !q.Killed && q.PausedUntil == nil
	})
	return build(c), refused
}
