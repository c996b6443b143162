package schedulingmodel

import (
	"errors"
	"math/big"
	"slices"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

var errInvalid = errors.New("invalid input")

// check returns an error if the input is one of those that R1 and R4 list.
func check(config scheduling.Config, queues []scheduling.Queue, nodes []scheduling.Node, nodeByJob map[string]string) error {
	known := func(class string) bool {
		return slices.ContainsFunc(config.PriorityClasses, func(c scheduling.PriorityClass) bool { return c.Name == class })
	}
	var resources, classes, names, ids, hosts []string
	var requests, totals []scheduling.Resources
	bad := len(config.Resources) == 0 || !known(config.DefaultPriorityClass)
	resources = append(resources, config.Resources...)
	for _, c := range config.PriorityClasses {
		classes = append(classes, c.Name)
	}
	for _, q := range queues {
		names = append(names, q.Name)
		bad = bad || q.PriorityFactor < 1
		for _, j := range q.Jobs {
			ids = append(ids, j.ID)
			requests = append(requests, j.Request)
			bad = bad || j.PriorityClass != "" && !known(j.PriorityClass)
			bad = bad || badGang(config, j, q.Jobs)
		}
	}
	for _, n := range nodes {
		hosts = append(hosts, n.Name)
		totals = append(totals, n.Total)
	}
	for id := range nodeByJob {
		bad = bad || !slices.Contains(ids, id)
	}
	if bad || twice(resources) || emptyOrTwice(classes) || emptyOrTwice(names) || emptyOrTwice(ids) || emptyOrTwice(hosts) ||
		badAmounts(config, requests) || badAmounts(config, totals) {
		return errInvalid
	}
	return nil
}

func badGang(config scheduling.Config, j scheduling.Job, jobs []scheduling.Job) bool {
	if j.Gang.ID == "" {
		return j.Gang != scheduling.Gang{}
	}
	class := func(j scheduling.Job) string {
		if j.PriorityClass == "" {
			return config.DefaultPriorityClass
		}
		return j.PriorityClass
	}
	members := 0
	for _, other := range jobs {
		if other.Gang.ID != j.Gang.ID {
			continue
		}
		members++
		if other.Gang != j.Gang || class(other) != class(j) {
			return true
		}
	}
	g := j.Gang
	return members > g.Cardinality || g.Cardinality < 1 || g.MinimumCardinality < 0 || g.MinimumCardinality > g.Cardinality
}

func badAmounts(config scheduling.Config, list []scheduling.Resources) bool {
	for r := range config.Resources {
		sum := new(big.Int)
		for _, amounts := range list {
			if len(amounts) > len(config.Resources) || amount(amounts, r) < 0 {
				return true
			}
			sum.Add(sum, big.NewInt(amount(amounts, r)))
		}
		if !sum.IsInt64() {
			return true
		}
	}
	return false
}

func emptyOrTwice(names []string) bool { return slices.Contains(names, "") || twice(names) }

func twice(names []string) bool {
	sorted := slices.Sorted(slices.Values(names))
	return len(slices.Compact(sorted)) < len(names)
}
