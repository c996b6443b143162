package schedulingmodel

// plantedInScheduler are wrong shortcuts of the Scheduler: with each of them, some cycle has another result than Schedule has.
func plantedInScheduler() []bug {
	return []bug{
		{"a change is no reason for another cycle, if the last one preempted", []patch{{
			"scheduler.go", "	if !s.changed && s.calm {", "	if !s.changed {",
		}}},
		{"a cycle without changes is skipped though the last one scheduled, in Armada's order", []patch{{
			"scheduler.go", "s.changed || c.likeArmada || !c.jobs[j].preemptible", "s.changed || !c.jobs[j].preemptible",
		}}},
		{"a cycle without changes is skipped though the last one scheduled jobs that cannot be evicted", []patch{{
			"scheduler.go", "s.changed || c.likeArmada || !c.jobs[j].preemptible", "s.changed || c.likeArmada",
		}}},
		{"a cycle is skipped though a retryAfter became due", []patch{{
			"scheduler.go", "s.unchecked, s.changed = append(s.unchecked, c.gangs[c.jobs[j].gang].members...), true", "s.unchecked = append(s.unchecked, c.gangs[c.jobs[j].gang].members...)",
		}}},
		{"a retryAfter that is due only when the cycle is later", []patch{{
			"scheduler.go", "!s.due[0].at.After(c.now)", "s.due[0].at.Before(c.now)",
		}}},
		{"a retryAfter is noted only for jobs that are alone", []patch{{
			"scheduler.go", "	if job.RetryAfter.After(s.config.Now) {", "	if job.RetryAfter.After(s.config.Now) && job.Gang.ID == \"\" {",
		}}},
		{"only the job whose retryAfter came is looked at, not its gang", []patch{{
			"scheduler.go", "append(s.unchecked, c.gangs[c.jobs[j].gang].members...), true", "append(s.unchecked, j), true",
		}}},
		{"a retryAfter that was replaced comes all the same", []patch{{
			"scheduler.go", " && c.jobs[j].RetryAfter.Equal(d.at) {", " {",
		}, {
			"scheduler.go", "		g.blocked = c.blocked(g)\n", "		if c.notYet(j) != TooEarly || g.blocked == UnknownReason {\n			g.blocked = c.blocked(g)\n		} else if c.jobs[j].RetryAfter.Sub(c.now) < 2e9 {\n			g.blocked = UnknownReason\n		}\n",
		}}},
		{"the jobs of one gang are not put in order", []patch{{
			"bunch.go", "	slices.SortFunc(b.jobs, c.compareInQueue)\n", "",
		}}},
		{"a gang that lost a member is not looked at again", []patch{{
			"bunch.go", "			if c.jobs[j].start == none {\n", "			if c.jobs[j].start == none && len(b.jobs) == c.jobs[j].Gang.Cardinality {\n",
		}}},
		{"only the first job of a gang is looked at", []patch{{
			"bunch.go", "			if c.jobs[j].start == none {\n", "			if c.jobs[j].start == none && len(g.members) == 1 {\n",
		}}},
		{"a running gang that lost members needs as many as before", []patch{{
			"bunch.go", "c.gangs[of].need = c.need(&c.gangs[of])", "c.gangs[of].need = max(1, c.jobs[c.gangs[of].members[0]].Gang.Cardinality)",
		}}},
		{"a gang keeps the label of the one before it", []patch{{
			"bunch.go", "c.gangs[g] = gang{queue: q, members: c.gangs[g].members[:0]}", "c.gangs[g] = gang{queue: q, members: c.gangs[g].members[:0], label: c.gangs[g].label}",
		}, {
			"bunch.go", "c.gangs[of].running, c.gangs[of].joined, c.gangs[of].label = running, joins, c.uniform(&c.jobs[j])", "c.gangs[of].running, c.gangs[of].joined = running, joins\n				if !running {\n					c.gangs[of].label = c.uniform(&c.jobs[j])\n				}",
		}}},
		{"queued and running jobs of a gang are one", []patch{{
			"bunch.go", "			if of == none {\n", "			if of == none && running && len(b.gangs) > 0 && c.jobs[j].preemptible {\n				of = b.gangs[0]\n				s.detach(of)\n			} else if of == none {\n",
		}}},
		{"a job that was scheduled keeps its place among the queued ones", []patch{{
			"scheduler.go", "	for _, j := range all { // their places may depend on whether they run\n		s.lift(j)\n	}\n", "",
		}, {
			"scheduler.go", "	for _, j := range all {\n		s.lower(j)\n	}\n", "	for _, j := range all {\n		if c.jobs[j].Gang.ID != \"\" {\n			s.lift(j)\n		} else {\n			c.gangs[c.jobs[j].gang].running = c.jobs[j].start != none\n			s.outlook.stale(c.jobs[j].queue)\n			s.unchecked = append(s.unchecked, j)\n		}\n	}\n",
		}}},
		{"a job that was preempted is not looked at", []patch{{
			"scheduler.go", "	if job.start == none {\n		s.unchecked = append(s.unchecked, j)\n	}\n	s.attach(job.gang)", "	s.attach(job.gang)",
		}}},
		{"a preempted job is still one that runs", []patch{{
			"scheduler.go", "	s.c.gangs[job.gang].running = job.start != none\n	if", "	s.c.gangs[job.gang].running = s.c.gangs[job.gang].running || job.start != none\n	if",
		}}},
		{"a node may have too many jobs only if it has them from the beginning", []patch{{
			"scheduler.go", "	s.tight = true\n", "	s.tight = old == nil\n",
		}}},
		{"a node that came back is not found by the jobs that ran there", []patch{{
			"scheduler.go", "		n, ok := c.nodeOf[name]\n		if !ok {", "		n, ok := c.nodeOf[name]\n		if !ok || job.node == gone {",
		}}},
		{"like Armada, a node that had more jobs than room gets no others in calm cycles", []patch{{
			"calm.go", "		clear(c.armada.over)\n", "",
		}}},
		{"jobs on nodes that are gone make no cycle full", []patch{{
			"calm.go", "	if len(s.nodeOf) > 0 || s.tight &&", "	if s.tight &&",
		}}},
		{"jobs on nodes that are gone are forgotten", []patch{{
			"scheduler.go", "			n = gone\n			runs[job.ID] = name\n", "			s.unchecked = append(s.unchecked, k)\n			continue\n",
		}}},
		{"nodes with the same names and totals are the same nodes", []patch{{
			"scheduler.go", "	s.nodes = append([]Node{}, nodes...)\n",
			"	if s.nodes == nil && slices.EqualFunc(nodes, s.c.nodes, func(a Node, b node) bool { return a.Name == b.Name && slices.Equal(a.Total, b.Total) }) {\n		return nil\n	}\n	s.nodes = append([]Node{}, nodes...)\n",
		}}},
		{"nodes with the same names are the same nodes", []patch{{
			"scheduler.go", "	s.nodes = append([]Node{}, nodes...)\n",
			"	if slices.EqualFunc(nodes, s.c.nodes, func(a Node, b node) bool { return a.Name == b.Name }) {\n		return nil\n	}\n	s.nodes = append([]Node{}, nodes...)\n",
		}}},
		{"the nodes of a label are kept when the nodes change", []patch{{
			"scheduler.go", "	old := s.c\n", "	old := s.c\n	if old != nil && len(old.nodes) == len(c.nodes) {\n		c.labels = old.labels\n	}\n",
		}}},
		{"of several changes of nodes the first one counts", []patch{{
			"scheduler.go", "	s.nodes = append([]Node{}, nodes...)\n", "	if s.nodes == nil {\n		s.nodes = append([]Node{}, nodes...)\n	}\n",
		}}},
		{"what was hopeless in the last cycle remains so", []patch{{
			"scheduler.go", "	s.changed = false\n	c.version++\n", "	s.changed = false\n",
		}}},
		{"who found no free room finds none by displacing others", []patch{{
			"hopeless.go", "h.requests[level+1:] {", "h.requests[max(0, level):] {",
		}}},
		{"what is hopeless in a calm cycle is so in a full one", []patch{{
			"calm.go", "	s.last.started = s.last.started[:0]\n	c.version++\n", "	s.last.started = s.last.started[:0]\n",
		}, {
			"cycle.go", "		if s != placed {\n			c.version++\n		}\n", "		if s != placed && job.start != none {\n			c.version++\n		}\n",
		}}},
		{"what a queue would have with the last job of a cycle remains in its rank", []patch{{
			"scheduler.go", "		c.rank.stale(int32(q))\n", "",
		}, {
			"scheduler.go", "	c.rank.toPlace = none\n", "",
		}}},
		{"a queue from which a job goes keeps its outlook", []patch{{
			"bunch.go", "	q.gangs = slices.Delete(q.gangs, i, i+1)\n	s.outlook.stale(s.c.gangs[g].queue)\n", "	q.gangs = slices.Delete(q.gangs, i, i+1)\n",
		}}},
		{"a queue into which a job comes keeps its outlook", []patch{{
			"bunch.go", "	q.gangs = slices.Insert(q.gangs, s.find(g), g)\n	s.outlook.stale(s.c.gangs[g].queue)\n", "	q.gangs = slices.Insert(q.gangs, s.find(g), g)\n",
		}, {
			"scheduler.go", "		s.outlook.stale(job.queue)\n		if c.reason(j)", "		if c.reason(j)",
		}}},
		{"a gang that may be selected now does not change its queue's outlook", []patch{{
			"scheduler.go", "		s.outlook.stale(job.queue)\n		if c.reason(j)", "		if c.reason(j)",
		}}},
		{"a queue's turn is the key of the gang alone", []patch{{
			"calm.go", "first || own.compare(turn) > 0", "first || own.compare(turn) != 0",
		}}},
		{"turns go on at the next level", []patch{{
			"calm.go", "first || own.compare(turn) > 0", "first || own.level >= turn.level && own.compare(turn) > 0",
		}}},
		{"jobs that cannot be evicted do not count for the turn", []patch{{
			"calm.go", "c.gangs[g].have > 0 && !c.keeps(g)", "c.gangs[g].have > 0",
		}}},
		{"a gang with another label follows", []patch{{
			"calm.go", " || before.need > gang.need || before.label != gang.label {", " || before.need > gang.need {",
		}}},
		{"a gang that needs fewer jobs follows", []patch{{
			"calm.go", " || before.need > gang.need || before.label != gang.label {", " || before.label != gang.label {",
		}}},
		{"a job follows one that avoids nodes", []patch{{
			"calm.go", " && (len(gang.members) > 1 || len(o.c.jobs[gang.members[0]].AvoidedNodes) == 0) {", " && len(gang.members) > 0 {",
		}}},
		{"like Armada, a gang follows a less urgent one", []patch{{
			"calm.go", "		if o.level(d) < o.level(g) || ", "		if ",
		}}},
		{"like Armada, gangs are passed over although one of their queue was scheduled", []patch{{
			"armadacalm.go", "			p.failed = none\n", "",
		}}},
		{"like Armada, the first queued gang of a queue is found before those that run have returned", []patch{{
			"armadacalm.go", "		if p.returns = p.returned.level < int32(c.levels); !p.returns {", "		if p.returns = false; !p.returns {",
		}}},
		{"like Armada, a gang returns before it counts", []patch{{
			"calm.go", "			if c.likeArmada { // see calmAsArmada\n", "			if c.likeArmada { // see calmAsArmada\n				o.add(o.sum, other, -1)\n",
		}}},
		{"a job follows one that requests more", []patch{{
			"calm.go", "			more = more && atLeast(c.request(j), c.request(before.members[i]))", "			more = more && (atLeast(c.request(j), c.request(before.members[i])) || len(gang.members) > 1)",
		}}},
		{"a queue that scheduled a job keeps its outlook", []patch{{
			"calm.go", "			at := o.places[g]\n			o.inspect(gang.queue)\n			for p.next = 0; p.next < len(p.candidates) && o.places[p.candidates[p.next]] < at; {\n				p.next++\n			}\n", "",
		}}},
		{"the jobs that a cycle scheduled before it was full remain", []patch{{
			"calm.go", "		c.put(j, nothing, none)\n		s.outlook.stale(c.jobs[j].queue)\n", "		s.outlook.stale(c.jobs[j].queue)\n",
		}}},
		{"what was tried before a job went is not tried again", []patch{{
			"scheduler.go", "	s.outlook.era++\n	delete(s.byID, job.ID)\n", "	delete(s.byID, job.ID)\n",
		}}},
		{"what was tried before a cycle that scheduled is not tried again", []patch{{
			"scheduler.go", "preempted)\n	s.outlook.era++\n", "preempted)\n",
		}}},
		{"like Armada, a queue's turn is the key of the gang alone", []patch{{
			"armadacalm.go", "	if own := c.line.key(q); own.compare(p.turn) > 0 {\n", "	if own := c.line.key(q); own.compare(p.turn) != 0 {\n",
		}}},
		{"like Armada, a job that cannot be evicted returns last", []patch{{
			"armadacalm.go", "		if !c.keeps(g) {\n			p.returned =", "		if true {\n			p.returned =",
		}}},
		{"like Armada, a cycle is calm though a gang of which only some run waits", []patch{{
			"armadacalm.go", "	if s.joined > 0 {\n", "	if s.joined > 1 {\n",
		}}},
		{"like Armada, a gang whose member's time has come does not join those that run", []patch{{
			"scheduler.go", "; c.likeArmada && name.id != \"\" { // it may join", "; false && name.id != \"\" { // it may join",
		}}},
		{"what a job that avoids nodes does not find, nobody does", []patch{{
			"calm.go", "	if single && len(c.work.avoided) == 0 {", "	if single {",
		}}},
		{"evicted jobs leave no reservations to displace", []patch{{
			"calm.go", "	available, reserved := c.available(n, c.jobs[g.members[0]].level), c.of(o.reserved, n)", "	available, reserved := c.available(n, c.jobs[g.members[0]].level), make([]int64, c.resources)",
		}}},
		{"a queue displaces nothing of its own", []patch{{
			"calm.go", "		copy(o.sum, c.of(o.running, int32(q)))\n", "		if int32(q) == c.gangs[g].queue {\n			continue\n		}\n		copy(o.sum, c.of(o.running, int32(q)))\n",
		}}},
		{"less urgent jobs are not displaced", []patch{{
			"calm.go", "	available, reserved := c.available(n, c.jobs[g.members[0]].level), c.of(o.reserved, n)", "	available, reserved := c.of(c.amounts.free, n), c.of(o.reserved, n)",
		}}},
		{"a gang's first job stands for all", []patch{{
			"calm.go", "			o.least[r] = min(o.least[r], amount)\n", "			o.least[r] = max(o.least[r], amount)\n",
		}}},
		{"a gang changes nothing unless all of it finds room", []patch{{
			"calm.go", "		if room += o.roomOn(g, n); room >= g.need {\n			return true\n		}\n	}\n	return false\n}\n\n// roomOn", "		if room += o.roomOn(g, n); room >= len(g.members) {\n			return true\n		}\n	}\n	return false\n}\n\n// roomOn",
		}}},
		{"a gang that needs one label finds no free nodes", []patch{{
			"calm.go", "		if _, ok := o.c.selectNodes(g, nodes, all); ok {\n			return true", "		if _, ok := o.c.selectNodes(g, nodes, all); ok && len(g.members) > 1 {\n			return true",
		}}},
		{"a gang is scheduled in part before it is known what it could displace", []patch{{
			"calm.go", "	all := terms{false, o.c.anything(), len(g.members)}", "	all := terms{false, o.c.anything(), g.need}",
		}}},
		{"a job that is queued again counts twice in the sum of requests", []patch{{
			"scheduler.go", "			sum[r] -= amount\n", "			sum[r] -= 0 * amount\n",
		}}},
		{"a job that was removed counts in the sum of requests", []patch{{
			"scheduler.go", "			s.sum[r] -= amount\n", "			s.sum[r] -= 0 * amount\n",
		}}},
		{"what failed with its gang also fits no node", []patch{{
			"scheduler.go", "	out.FitsNoNode = slices.DeleteFunc(out.FitsNoNode, func(id string) bool { return slices.Contains(out.Failed, id) })\n", "",
		}}},
	}
}
