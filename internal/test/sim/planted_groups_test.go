package sim_test

// plantedGroups are bugs in the code of groups. Their rules are the sections of the
// semantics of groups.
func plantedGroups() []bug {
	return []bug{
		{"groups 1", "the next free index is the number of members", []patch{{
			"group/group.go", "	return uint32(low)\n", "	return uint32(n)\n",
		}}},
		{"groups 1", "a unit may have members of two gangs", []patch{{
			"group/membership.go", "if u != nil && (u.GangID != m.GangID || u.GangSize != m.GangSize) {", "if u != nil && u.GangID == \"\" && m.GangID != \"\" {",
		}}},
		{"groups 1", "an index may be taken twice", []patch{{
			"group/membership.go", "case u != nil && u.Member(index) != nil:", "case false:",
		}}},
		{"groups 3", "units succeed a message later", []patch{{
			"projection/group.go", "			if u.State == group.Active && u.Enough() {", "			if u.State == group.Active && u.Enough() && u.Changed < s.Watermark {",
		}}},
		{"groups 4.1", "a run of a group that has ended is decided by itself", []patch{{
			"evaluator/groups.go", "	case m.Over:\n", "	case m.Over && m.Group == nil:\n",
		}}},
		{"groups 4.2", "a run that a restart told to stop is decided by itself", []patch{{
			"evaluator/groups.go", "	case m.Pending != nil:\n", "	case m.Pending != nil && m.Unit == nil:\n",
		}}},
		{"groups 4.2", "the grace of a run that was told to stop is left out", []patch{{
			"evaluator/groups.go", "max(m.Pending.RetryAfter, p.endOfPod())", "m.Pending.RetryAfter",
		}}},
		{"groups 4.4", "the unit's retryLimit grants one retry more", []patch{{
			"evaluator/groups.go", "return used >= uint64(*s.RetryLimit)", "return used > uint64(*s.RetryLimit)",
		}}},
		{"groups 4.4", "a gang's retry restarts the failed member alone", []patch{{
			"projection/groupdecide.go", "	case md.GangRestart:\n", "	case md.GangRestart && u.GangID == \"\":\n",
		}}},
		{"groups 4.5", "one member more may fail than maxFailedMembers", []patch{{
			"evaluator/groups.go", "u.Failed()+1 > int(*s.MaxFailedMembers)", "u.Failed() > int(*s.MaxFailedMembers)",
		}}},
		{"groups 5", "a unit fails again that is over", []patch{{
			"evaluator/groups.go", "	if !active {\n", "	if !active && m.Unit == nil {\n",
		}}},
		{"groups 5", "of one message, the failure with the last rule comes first", []patch{{
			"evaluator/grouporder.go", "places, byRule = append(places, k), append(byRule, inPlace{i, rule})", "places, byRule = append(places, k), append(byRule, inPlace{i, -rule})",
		}}},
		{"groups 5", "one restart more than maxRestarts", []patch{{
			"policy/groupverdict.go", "u.Counted >= v.Max", "u.Counted > v.Max",
		}}},
		{"groups 5", "a group that halted restarts units", []patch{{
			"policy/groupverdict.go", "	case u.Halted || u.Barred:\n", "	case u.Barred:\n",
		}}},
		{"groups 6", "a restart does not begin a generation", []patch{{
			"group/group.go", "				other.Generation++\n", "",
		}}},
		{"groups 6", "a cancelled member is restarted", []patch{{
			"projection/groupdecide.go", "	return m.Status&group.WasCancelled == 0 && !r.keeps(u, m)\n", "	return !r.keeps(u, m)\n",
		}}},
		{"groups 6", "completed: Keep keeps members of gangs too", []patch{{
			"projection/groupdecide.go", "r.keep && u.GangID == \"\"", "r.keep",
		}}},
		{"groups 6", "a success of a run that was told to stop counts", []patch{{
			"projection/group.go", "pending != nil && pending.Run == r.ID {", "pending != nil && pending.Run == r.ID && false {",
		}}},
		{"groups 6", "the members' counts do not start anew", []patch{{
			"projection/groupdecide.go", "		j.Rules, j.LegacyReturns = nil, 0\n", "		j.LegacyReturns = 0\n",
		}}},
		{"groups 6", "a gang starts again at the grace of its last member, not the longest", []patch{{
			"projection/groupdecide.go", "				longest = max(longest, s.liveGrace(s.entry(m.Job).job))\n", "				longest = s.liveGrace(s.entry(m.Job).job)\n",
		}}},
		{"groups 7", "a member that may not start is not held", []patch{{
			"projection/group.go", "	if mayStart && !ended || !s.happens(", "	if (mayStart || part.Index > 0) && !ended || !s.happens(",
		}}},
		{"groups 7", "one member more starts than parallelism", []patch{{
			"group/tally.go", "u.Started() < int(u.Part.Parallelism)", "u.Started() <= int(u.Part.Parallelism)",
		}}},
		{"groups 7", "after waits for one unit of a part, not for all", []patch{{
			"group/success.go", "p.tally.units[isSucceeded] == int(p.Replicas)", "p.tally.units[isSucceeded] > 0",
		}}},
		{"groups 8", "the end of a group leaves held members as they are", []patch{{
			"projection/groupdecide.go", "		if m := &u.Members[i]; !m.Status.Over() {\n			s.stop(u, m)", "		if m := &u.Members[i]; !m.Status.Over() && m.Status&group.Held == 0 {\n			s.stop(u, m)",
		}}},
		{"groups 8", "an exhausted group ends only after the horizon", []patch{{
			"projection/groupdecide.go", "	case can == group.Exhausted:\n", "	case can == group.Exhausted && passed:\n",
		}}},
		{"groups 9", "groups act in shadow", []patch{{
			"evaluator/groups.go", "bool { return p.Rules.Set.Acts(queue) }", "bool { return p.Rules.Set != nil || queue == \"\" }",
		}}},
		{"groups 9", "who catches up does not compare the records of groups", []patch{{
			"evaluator/replay.go", "	return bytes.Equal(l.rest.Bytes[i], l.p.buf)", "	return !bytes.Equal(l.rest.Bytes[i], nil)",
		}}},
		{"groups 9", "who catches up forgets that a restart keeps members", []patch{{
			"evaluator/replay.go", "Max: v.MaxRestarts, Keep: v.Keep, Refused: v.Refused}\n}", "Max: v.MaxRestarts, Refused: v.Refused}\n}",
		}}},
		{"groups 9", "the restarts of a group are not stored", []patch{{
			"projection/groupkeep.go", "	e.uint(uint64(g.Counted))\n", "	e.uint(0)\n",
		}}},
		{"groups 9", "a pending restart is not stored", []patch{{
			"projection/encoding.go", "	e.bools(m.Restart != nil)\n	if r := m.Restart; r != nil {", "	e.bools(false)\n	if r := m.Restart; r != nil && false {",
		}}},
		{"groups 9", "that a member is held is not stored", []patch{{
			"projection/groupkeep.go", "append([]byte{byte(m.Status)}, m.Job...)", "append([]byte{byte(m.Status &^ group.Held)}, m.Job...)",
		}}},
	}
}

// plantedForModel are bugs to which the simulation comes too seldom: histories of groups that
// are held against the reference model, or replayed, must catch them.
func plantedForModel() []bug {
	return append(plantedBudgets(), []bug{
		{"groups 5", "restarts that do not count are not limited by their rule", []patch{{
			"policy/groupverdict.go", "rule.Limit != nil && u.Restarted(rule.Name) >= *rule.Limit:", "!rule.Uncounted && rule.Limit != nil && u.Restarted(rule.Name) >= *rule.Limit:",
		}}},
		{"groups 6", "the unit's retries do not start anew", []patch{{
			"projection/groupdecide.go", "			u.Retries = 0\n", "",
		}}},
		{"groups 7", "a group that halted releases members", []patch{{
			"projection/groupdecide.go", "	if ge.g.State != policy.GroupActive || ge.g.Halted {", "	if ge.g.State != policy.GroupActive {",
		}}},
		{"groups 9", "the retries of a unit are not stored", []patch{{
			"projection/groupkeep.go", "	e.uint(uint64(u.Retries))\n", "	e.uint(0)\n",
		}}},
	}...)
}
