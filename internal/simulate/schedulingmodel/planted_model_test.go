package schedulingmodel

// plantedInSchedule are wrong readings and wrong shortcuts of Schedule: with each of them, some result differs from that of the model.
func plantedInSchedule() []bug {
	return []bug{
		{"the gang to select does not count in the fraction", []patch{{
			"order.go", "				sum[r] += amount\n			}\n		}\n	}\n	return fractionOf(sum, c.total, c.queues[q].factor)\n}\n\n// selectNext", "				sum[r] += 0 * amount\n			}\n		}\n	}\n	return fractionOf(sum, c.total, c.queues[q].factor)\n}\n\n// selectNext",
		}}},
		{"a gang's first job counts for all in the fraction", []patch{{
			"order.go", "	for _, j := range c.firstGang(q).members {\n", "	for _, j := range c.firstGang(q).members[:1] {\n",
		}}},
		{"the weight does not count in the order of queues", []patch{{
			"order.go", "	return fractionOf(sum, c.total, c.queues[q].factor)\n}\n\n// selectNext", "	return fractionOf(sum, c.total, 1000)\n}\n\n// selectNext",
		}}},
		{"the weight is the priority factor", []patch{{
			"fraction.go", "	return fraction{amounts[r], totals[r], factor}\n", "	return fraction{amounts[r], totals[r], 1 + (1<<12)/factor}\n",
		}}},
		{"the first resource that has a total is dominant", []patch{{
			"fraction.go", "		if best < 0 || amounts[best] == 0 || isLarger(", "		if best < 0 || amounts[best] == 0 || false && isLarger(",
		}}},
		{"of equal fractions the name decides, though one would lose its node", []patch{{
			"order.go", "order != 0 || k.running == o.running {", "order != 0 || true {",
		}}},
		{"the least urgent class is selected like all others", []patch{{
			"schedule.go", "	for level := int32(c.levels) - 1; level >= 0; level-- {\n", "	for level := int32(c.levels) - 1; level >= 0; level-- {\n		if level == 1 {\n			level = 0\n		}\n",
		}}},
		{"job priority: highest first", []patch{{
			"order.go", "		return cmp.Compare(a.Priority, b.Priority)\n", "		return cmp.Compare(b.Priority, a.Priority)\n",
		}}},
		{"time submitted before job priority", []patch{{
			"order.go", "	if a.Priority != b.Priority {\n", "	if t := a.Submitted.Compare(b.Submitted); t != 0 {\n		return t\n	}\n	if a.Priority != b.Priority {\n",
		}}},
		{"jobs of equal time keep the order of the input", []patch{{
			"order.go", "	return strings.Compare(a.ID, b.ID)\n", "	return 0\n",
		}, {
			"order.go", "	\"slices\"\n	\"strings\"\n", "	\"slices\"\n",
		}, {
			"order.go", "	slices.SortFunc(c.jobs, func(", "	slices.SortStableFunc(c.jobs, func(",
		}}},
		{"all running jobs are evicted", []patch{{
			"schedule.go", "		case !job.preemptible:\n", "		case !job.preemptible && job.level == 0:\n",
		}}},
		{"a job that cannot be evicted loses a node that is gone", []patch{{
			"schedule.go", "		case !job.preemptible:\n", "		case !job.preemptible && job.start != gone:\n",
		}}},
		{"evicted jobs leave no reservation", []patch{{
			"schedule.go", "			c.put(int32(j), reserved, job.start)\n", "			c.put(int32(j), nothing, none)\n",
		}}},
		{"evicted jobs may return to any node", []patch{{
			"place.go", "	if job.start != none {\n		return c.selectOwnNode(j, t)\n	}\n", "	if job.start == gone {\n		return c.selectOwnNode(j, t)\n	}\n",
		}}},
		{"a job takes what an equal one has that has returned", []patch{{
			"place.go", "o.level < j.level || o.level == j.level && o.state == reserved", "o.level <= j.level",
		}}},
		{"equal jobs keep their reservations", []patch{{
			"place.go", "o.level < j.level || o.level == j.level && o.state == reserved", "o.level < j.level",
		}}},
		{"jobs that need not go are not spared", []patch{{
			"place.go", "		if spared {\n", "		if false {\n",
		}}},
		{"jobs are spared from the first on", []patch{{
			"place.go", "	for _, v := range slices.Backward(victims[:k]) {\n", "	for _, v := range victims[:k] {\n",
		}}},
		{"the dearest class is displaced first", []patch{{
			"place.go", "			return cmp.Compare(a.level, b.level)\n", "			return cmp.Compare(b.level, a.level)\n",
		}}},
		{"the queue with the smallest fraction loses", []patch{{
			"order.go", "		return order > 0\n", "		return order < 0\n",
		}}},
		{"the first job of a queue is displaced first", []patch{{
			"place.go", "		return c.compareInQueue(b.job, a.job)\n", "		return c.compareInQueue(a.job, b.job)\n",
		}}},
		{"the job to place does not count in its queue's fraction", []patch{{
			"order.go", "		if q == c.jobs[toPlace].queue {\n", "		if false {\n",
		}}},
		{"of nodes with equal victims, the one with most free", []patch{{
			"place.go", "			if best == none || c.fitScore(n, best) < 0 {\n", "			if best == none || c.fitScore(n, best) > 0 {\n",
		}}},
		{"the search ends at the first node with victims", []patch{{
			"place.go", "			if d.compare(cheapest) <= 0 {\n", "			if d.level <= cheapest.level {\n",
		}}},
		{"the cheapest victim is looked for among reservations", []patch{{
			"place.go", "			if k.displaceable[0][i] > 0 || low < level && k.displaceable[1][i] > 0 {\n", "			if k.displaceable[0][i] > 0 {\n",
		}}},
		{"a node with victims as dear as the best is as good", []patch{{
			"place.go", "			limit = c.limit(bestD)\n		}\n	}\n	return best, bestD\n}\n\n// limit is", "			limit = c.limit(bestD)\n			limit.equal = true\n		}\n	}\n	return best, bestD\n}\n\n// limit is",
		}}},
		{"avoided nodes are avoided only if they are free", []patch{{
			"place.go", "			if !c.fitsWithin(j, n, limit) || slices.Contains(c.work.avoided, n) {\n				continue\n			}\n			d, ok", "			if !c.fitsWithin(j, n, limit) {\n				continue\n			}\n			d, ok",
		}}},
		{"avoided nodes are not avoided by gangs with a label", []patch{{
			"place.go", "		if jobFitsOnNode(request, c.of(c.amounts.free, n)) && !slices.Contains(c.work.avoided, n) {\n			if best", "		if jobFitsOnNode(request, c.of(c.amounts.free, n)) {\n			if best",
		}}},
		{"what a job that avoids nodes does not find, nobody does", []patch{{
			"place.go", "	if n == none && len(c.work.avoided) == 0 {\n", "	if n == none {\n",
		}}},
		{"what was hopeless before a job lost its node remains so", []patch{{
			"cycle.go", "			c.version++\n", "",
		}}},
		{"a request is hopeless if one resource of it is", []patch{{
			"hopeless.go", "		if request[r] < amount {\n			return false\n		}\n	}\n	return true", "		if request[r] >= amount && amount > 0 {\n			return true\n		}\n	}\n	return false",
		}}},
		{"a gang that finds too little room keeps what it found", []patch{{
			"place.go", "	if g.have < t.have {\n		c.takeBack()\n", "	if g.have < t.have {\n",
		}}},
		{"a gang stops at the first job that finds no room", []patch{{
			"place.go", "			if missing++; len(g.members)-missing < t.have {\n", "			if missing++; missing > 0 {\n",
		}}},
		{"a gang that loses a job keeps the others", []patch{{
			"place.go", "	if g.have >= g.need {\n		return\n", "	if g.have >= 0 {\n		return\n",
		}}},
		{"a gang that loses a job loses all, whatever it needs", []patch{{
			"place.go", "	if g.have >= g.need {\n		return\n", "	if g.have == len(g.members) {\n		return\n",
		}}},
		{"a running gang needs as many jobs as a queued one", []patch{{
			"order.go", "		return min(need, len(g.members))\n", "		return need\n",
		}}},
		{"minimum cardinalities are not read", []patch{{
			"order.go", "least > 0 {", "false && least > 0 {",
		}}},
		{"like Armada, jobs that cannot be evicted lose their nodes to urgent ones", []patch{{
			"cycle.go", "	if c.likeArmada && !j.preemptible {\n", "	if false {\n",
		}}},
		{"like Armada, the order does not look at what runs", []patch{{
			"order.go", "c.likeArmada && runs != (b.start != none) {", "false && runs != (b.start != none) {",
		}}},
		{"like Armada, a gang stands at its first member", []patch{{
			"armada.go", "		return members[len(members)-1]\n", "		return members[0]\n",
		}}},
		{"like Armada, queued jobs of a gang do not join those that run", []patch{{
			"armada.go", "	return running > 0 && running < len(jobs)\n", "	return false\n",
		}}},
		{"like Armada, keys that failed are tried again", []patch{{
			"armada.go", "		return c.jobs[j].start == none && c.armada.failed[", "		return false && c.armada.failed[",
		}}},
		{"like Armada, what an evicted job has is not available to jobs of its class", []patch{{
			"cycle.go", "		last = none\n", "		last--\n",
		}}},
		{"like Armada, victims that need not go are spared", []patch{{
			"armada.go", "		a.victims = append(a.victims, a.on[n]...)\n", "		a.victims = append(a.victims, e)\n",
		}}},
		{"like Armada, victims are taken from the first on", []patch{{
			"armada.go", "	for _, e := range slices.Backward(a.order) {\n", "	for _, e := range a.order {\n",
		}}},
		{"like Armada, urgent jobs go where most is available first", []patch{{
			"armada.go", "	for level := int32(0); level < job.level; level++ {\n", "	for level := job.level; level < job.level; level++ {\n",
		}}},
		{"like Armada, there is no second pass", []patch{{
			"armada.go", "	c.evictOversubscribed()\n	c.pass()\n", "	c.evictOversubscribed()\n",
		}}},
		{"like Armada, jobs on nodes with more jobs than room are preempted", []patch{{
			"armada.go", "n := job.node; c.armada.over[n] || fitsAll(", "n := job.node; fitsAll(",
		}}},
		{"like Armada, the first value of a label is taken", []patch{{
			"armada.go", "			if best == none || sum < least {\n", "			if best == none {\n",
		}}},
		{"queued and running jobs of a gang are selected together", []patch{{
			"order.go", "		k := named{job.queue, job.Gang.ID, job.start != none}\n", "		k := named{job.queue, job.Gang.ID, job.start != none && !job.preemptible}\n",
		}}},
		{"a gang with a held member can be selected", []patch{{
			"order.go", "		if c.notYet(j) == UnknownReason {\n", "		if c.notYet(j) != TooEarly {\n",
		}}},
		{"a job whose time has come waits once more", []patch{{
			"order.go", "	case job.RetryAfter.After(c.now):\n", "	case !job.RetryAfter.Before(c.now):\n",
		}}},
		{"the first value of a label with room is taken", []patch{{
			"place.go", "		if best == none || g.have > t.have || dearest.compare(bestDearest) < 0 {\n", "		if best == none {\n",
		}}},
		{"an evicted gang needs its label", []patch{{
			"place.go", "	if g.label == \"\" || g.running {\n", "	if g.label == \"\" {\n",
		}, {
			"place.go", "	if job.start != none {\n		return c.selectOwnNode(j, t)\n	}\n", "	if job.start != none && (nodes == nil || slices.Contains(nodes, job.start)) {\n		return c.selectOwnNode(j, t)\n	} else if job.start != none {\n		return none, displaced{}\n	}\n",
		}}},
		{"a job stays on a node that has too many", []patch{{
			"place.go", "		if amount > 0 && free[r] < 0 {\n", "		if amount < 0 && free[r] < 0 {\n",
		}}},
		{"a job that requests nothing finds no room on a node with too many", []patch{{
			"cycle.go", "		if amount > available[r] && amount > 0 {\n", "		if amount > available[r] {\n",
		}}},
		{"blocks of nodes that changed keep their maxima", []patch{{
			"index.go", "		b := x.blocks[at]\n		b.stale = true\n", "		b := x.blocks[at]\n",
		}, {
			"index.go", "slices.Insert(b.nodes, i, n), true\n", "slices.Insert(b.nodes, i, n), b.stale\n",
		}}},
		{"nodes whose free resources changed stay where they are in the index", []patch{{
			"index.go", "		if slices.Equal(free, indexed) {\n", "		if free[0] == indexed[0] {\n",
		}}},
		{"every queued job without a node whose gang runs has failed", []patch{{
			"result.go", "			case g.have > 0:\n", "			case g.have > 0 || g.blocked == UnknownReason && len(g.members) > g.need:\n",
		}}},
		{"a job that avoids every node on which it fits waits for room", []patch{{
			"result.go", "		if fits(request, c.nodes[n].Total) && !slices.Contains(c.work.avoided, int32(n)) {\n", "		if fits(request, c.nodes[n].Total) {\n",
		}}},
		{"a queue with held jobs only is not active", []patch{{
			"result.go", "		if len(c.queues[q].gangs) > 0 {\n", "		if len(c.queues[q].gangs) > 0 && c.gangs[c.queues[q].gangs[0]].blocked == UnknownReason {\n",
		}}},
		{"sums of requests overflow", []patch{{
			"check.go", "		if amount > math.MaxInt64-sum[r] {\n", "		if amount > math.MaxInt64-0*sum[r] {\n",
		}}},
	}
}

// plantedInRareCases are those that random instances hardly ever meet, so that tests of one situation must catch them.
func plantedInRareCases() []bug {
	return []bug{
		{"the value of a label with the cheapest victims is taken, not that with most jobs", []patch{{
			"place.go", "		if best == none || g.have > t.have || dearest.compare(bestDearest) < 0 {\n", "		if best == none || dearest.compare(bestDearest) < 0 {\n",
		}}},
		{"the jobs of a gang may differ in class", []patch{{
			"order.go", "	if a.Gang != b.Gang || cmp.Or(", "	if a.Gang != b.Gang || false && cmp.Or(",
		}}},
		{"queued and running jobs of a gang count apart for its cardinality", []patch{{
			"order.go", "		both := named{job.queue, job.Gang.ID, false}\n", "		both := k\n",
		}}},
		{"fractions are compared by their upper 128 bits", []patch{{
			"fraction.go", "[3][2]uint64{{a2, b2}, {a1, b1}, {a0, b0}}", "[2][2]uint64{{a2, b2}, {a1, b1}}",
		}, {
			"fraction.go", "	a2, a1, a0 := product", "	a2, a1, _ := product",
		}, {
			"fraction.go", "	b2, b1, b0 := product", "	b2, b1, _ := product",
		}}},
		{"a carry is lost", []patch{{
			"fraction.go", "	return p2 + over, p1, p0\n", "	return p2 + 0*over, p1, p0\n",
		}}},
	}
}
