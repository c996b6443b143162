package standin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	hostname         = "kubernetes.io/hostname"
	failFastKey      = "armadaproject.io/failFast"
	gangKey          = "armadaproject.io/gangId"
	cardinalityKey   = "armadaproject.io/gangCardinality"
	defaultClass     = "armada-default"
	preemptibleClass = "armada-preemptible"
	namespace        = "default"
	pool             = "default"
)

// priorityOf is the priority that the configuration gives to a priority class.
func priorityOf(string) uint64 { return 1000 }

// schedulingInfo is a JobSchedulingInfo as the scheduler keeps it. It is not
// changed once it is made.
type schedulingInfo struct {
	lifetime, priority uint64
	class              string
	submitted          msg // Timestamp
	version            uint32
	mutations          msg // RetryResourceMutations

	selector    map[string]string
	affinity    *affinity
	tolerations [][]byte
	resources   msg               // ResourceRequirements
	requests    map[string]string // of them
	annotations map[string]string
	slots       int64 // cpu, rounded up
}

// affinity is a pod's affinity. Fields that the scheduler does not read are kept.
type affinity struct {
	required  bool // there is a required node affinity
	terms     []term
	ofNodes   msg // the rest of NodeAffinity
	ofTheRest msg // the rest of Affinity
}

type term struct {
	expressions []expression
	rest        msg
}

type expression struct {
	key, operator string
	values        []string
}

// errNoPod is what Armada's scheduler says, every cycle.
var errNoPod = errors.New("job must have pod requirements")

func parseInfo(b []byte) (*schedulingInfo, error) {
	i := &schedulingInfo{selector: map[string]string{}, annotations: map[string]string{}, requests: map[string]string{}}
	pods := 0
	err := scan(b, func(f field) error {
		switch f.number {
		case 1:
			i.lifetime = f.value
		case 5:
			return scan(f.bytes, func(f field) error {
				if f.number != 1 {
					return nil
				}
				pods++
				return i.parsePod(f.bytes)
			})
		case 6:
			i.class = f.text()
		case 7:
			i.submitted = f.bytes
		case 8:
			i.priority = f.value
		case 9:
			i.version = uint32(f.value)
		case 11:
			i.mutations = f.bytes
		}
		return nil
	})
	if err == nil && pods == 0 {
		err = errNoPod
	}
	return i, err
}

func (i *schedulingInfo) parsePod(b []byte) error {
	err := scan(b, func(f field) (err error) {
		switch f.number {
		case 1:
			return pair(f.bytes, i.selector)
		case 2:
			i.affinity, err = parseAffinity(f.bytes)
		case 3:
			i.tolerations = append(i.tolerations, f.bytes)
		case 6:
			i.resources = f.bytes
		case 7:
			return pair(f.bytes, i.annotations)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = scan(i.resources, func(f field) error {
		if f.number != 2 {
			return nil
		}
		name, err := walk(f.bytes, 1)
		if err != nil {
			return err
		}
		quantity, err := walk(f.bytes, 2, 1)
		i.requests[name.text()] = quantity.text()
		return err
	})
	if err != nil {
		return err
	}
	for name, text := range i.requests {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("request of %s: %w", name, err)
		}
		if name == "cpu" {
			i.slots = q.Value()
		}
	}
	return nil
}

func parseAffinity(b []byte) (*affinity, error) {
	a := &affinity{}
	err := scan(b, func(f field) error {
		if f.number != 1 {
			a.ofTheRest = a.ofTheRest.sub(protowire.Number(f.number), f.bytes)
			return nil
		}
		return scan(f.bytes, func(f field) error {
			if f.number != 1 {
				a.ofNodes = a.ofNodes.sub(protowire.Number(f.number), f.bytes)
				return nil
			}
			a.required = true
			return scan(f.bytes, func(f field) error {
				t, err := parseTerm(f.bytes)
				a.terms = append(a.terms, t)
				return err
			})
		})
	})
	return a, err
}

func parseTerm(b []byte) (term, error) {
	var t term
	err := scan(b, func(f field) error {
		if f.number != 1 {
			t.rest = t.rest.sub(protowire.Number(f.number), f.bytes)
			return nil
		}
		var e expression
		err := scan(f.bytes, func(f field) error {
			switch f.number {
			case 1:
				e.key = f.text()
			case 2:
				e.operator = f.text()
			case 3:
				e.values = append(e.values, f.text())
			}
			return nil
		})
		t.expressions = append(t.expressions, e)
		return err
	})
	return t, err
}

// encode is the form in which the scheduler gives it back. It drops what the
// scheduler drops.
func (i *schedulingInfo) encode() msg {
	pod := msg(nil).pairs(1, i.selector)
	if i.affinity != nil {
		pod = pod.sub(2, i.affinity.encode())
	}
	for _, t := range i.tolerations {
		pod = pod.sub(3, t)
	}
	pod = pod.sub(6, i.resources).pairs(7, i.annotations)
	m := msg(nil).num(1, i.lifetime).sub(5, msg(nil).sub(1, pod)).str(6, i.class)
	if i.submitted != nil {
		m = m.sub(7, i.submitted)
	}
	m = m.num(8, i.priority).num(9, uint64(i.version))
	if i.mutations != nil {
		m = m.sub(11, i.mutations)
	}
	return m
}

func (a *affinity) encode() msg {
	var nodes msg
	if a.required {
		var selector msg
		for _, t := range a.terms {
			var m msg
			for _, e := range t.expressions {
				x := msg(nil).str(1, e.key).str(2, e.operator)
				for _, v := range e.values {
					x = x.sub(3, msg(v))
				}
				m = m.sub(1, x)
			}
			selector = selector.sub(1, append(m, t.rest...))
		}
		nodes = nodes.sub(1, selector)
	}
	if nodes = append(nodes, a.ofNodes...); nodes == nil {
		return a.ofTheRest
	}
	return append(msg(nil).sub(1, nodes), a.ofTheRest...)
}

// avoiding returns requirements one version higher that keep away from nodes.
func (i *schedulingInfo) avoiding(nodes []string) *schedulingInfo {
	c := *i
	c.version++
	c.affinity = c.affinity.avoiding(nodes)
	return &c
}

// avoiding adds the nodes to every term, in an expression that is there or a new one.
func (a *affinity) avoiding(nodes []string) *affinity {
	c := affinity{required: true}
	if a != nil {
		c.ofNodes, c.ofTheRest, c.terms = a.ofNodes, a.ofTheRest, slices.Clone(a.terms)
	}
	if len(c.terms) == 0 {
		c.terms = []term{{}}
	}
	for n := range c.terms {
		t := &c.terms[n]
		t.expressions = slices.Clone(t.expressions)
		at := slices.IndexFunc(t.expressions, func(e expression) bool { return e.key == hostname && e.operator == "NotIn" })
		if at < 0 {
			at = len(t.expressions)
			t.expressions = append(t.expressions, expression{key: hostname, operator: "NotIn"})
		}
		e := &t.expressions[at]
		e.values = slices.Clone(e.values)
		for _, node := range nodes {
			if !slices.Contains(e.values, node) {
				e.values = append(e.values, node)
			}
		}
	}
	return &c
}

// fits says whether an empty node would do.
func (i *schedulingInfo) fits(n Node) bool {
	labels := maps.Clone(n.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hostname] = n.Name
	for key, want := range i.selector {
		if have, ok := labels[key]; !ok || have != want {
			return false
		}
	}
	if i.slots > int64(n.Slots) {
		return false
	}
	if i.affinity == nil || !i.affinity.required {
		return true
	}
	return slices.ContainsFunc(i.affinity.terms, func(t term) bool {
		return len(t.expressions) > 0 && !slices.ContainsFunc(t.expressions, func(e expression) bool { return !e.matches(labels) })
	})
}

func (e expression) matches(labels map[string]string) bool {
	have, there := labels[e.key]
	switch e.operator {
	case "In":
		return there && slices.Contains(e.values, have)
	case "NotIn":
		return !there || !slices.Contains(e.values, have)
	case "Exists":
		return there
	case "DoesNotExist":
		return !there
	}
	return false
}

// lost returns which submitted requirements are missing in now, if any. Additional nodes to avoid are allowed, if
// they are in every term.
func (i *schedulingInfo) lost(now *schedulingInfo) string {
	switch {
	case now.class != i.class:
		return "priority class " + i.class
	case !maps.Equal(now.selector, i.selector):
		return fmt.Sprintf("node selector %v (now %v)", i.selector, now.selector)
	case !maps.Equal(now.requests, i.requests):
		return fmt.Sprintf("requests %v (now %v)", i.requests, now.requests)
	case !maps.Equal(now.annotations, i.annotations):
		return fmt.Sprintf("annotations %v (now %v)", i.annotations, now.annotations)
	case !slices.EqualFunc(now.tolerations, i.tolerations, bytes.Equal):
		return "tolerations"
	case now.priority != i.priority:
		return fmt.Sprintf("priority %d (now %d)", i.priority, now.priority)
	}
	if have := now.affinity.keeps(i.affinity); !have {
		return "affinity"
	}
	return ""
}

// keeps says whether nothing but nodes to avoid were added to another affinity.
func (a *affinity) keeps(old *affinity) bool {
	if a == nil {
		return old == nil
	}
	if old == nil {
		old = &affinity{}
	}
	if !bytes.Equal(a.ofNodes, old.ofNodes) || !bytes.Equal(a.ofTheRest, old.ofTheRest) {
		return false
	}
	terms := old.terms
	if a.required && len(terms) == 0 {
		terms = []term{{}}
	}
	return slices.EqualFunc(a.terms, terms, func(t, old term) bool {
		for _, e := range t.expressions {
			added := e.key == hostname && e.operator == "NotIn"
			if !added && !slices.ContainsFunc(old.expressions, e.equal) {
				return false
			}
		}
		for _, e := range old.expressions {
			if !slices.ContainsFunc(t.expressions, e.within) {
				return false
			}
		}
		return bytes.Equal(t.rest, old.rest)
	})
}

func (e expression) equal(o expression) bool {
	return e.key == o.key && e.operator == o.operator && slices.Equal(e.values, o.values)
}

// within says whether another expression has at least these values.
func (e expression) within(o expression) bool {
	return e.key == o.key && e.operator == o.operator &&
		!slices.ContainsFunc(e.values, func(v string) bool { return !slices.Contains(o.values, v) })
}

// gang is the gang that the annotations name; without one, or of one member, it is "".
func (i *schedulingInfo) gang() (id string, members int) {
	id = i.annotations[gangKey]
	if _, err := fmt.Sscan(i.annotations[cardinalityKey], &members); id == "" || err != nil || members < 2 {
		return "", 1
	}
	return id, members
}
