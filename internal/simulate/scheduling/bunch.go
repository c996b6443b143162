package scheduling

import "slices"

// bunchName names the jobs of a queue with one gang ID. They are up to two gangs: the queued ones, and those that run.
type bunchName struct {
	queue int32
	id    string
}

type bunch struct {
	jobs   []int32
	gangs  []int32 // attached to the queue, or, if the bunch is broken, about to be freed
	broken bool
}

// noGang is the gang, of no queue, of the jobs of a bunch until it is mended.
const noGang = 0

// breakUp has the gangs of a bunch made anew.
func (s *Scheduler) breakUp(name bunchName, b *bunch) {
	if b.broken {
		return
	}
	b.broken = true
	s.broken = append(s.broken, name)
	for _, g := range b.gangs {
		s.detach(g)
	}
}

func (s *Scheduler) mendAll() {
	for _, name := range s.broken {
		s.mend(name)
	}
	s.broken = s.broken[:0]
}

// mend makes the gangs of a bunch from its jobs.
func (s *Scheduler) mend(name bunchName) {
	c, b := s.c, s.bunches[name]
	for _, g := range b.gangs {
		if c.gangs[g].joined {
			s.joined--
		}
		s.freeGang(g)
	}
	b.gangs, b.broken = b.gangs[:0], false
	if len(b.jobs) == 0 {
		delete(s.bunches, name)
		return
	}
	slices.SortFunc(b.jobs, c.compareInQueue)
	joins := c.joins(b.jobs)
	if joins {
		s.joined++
	}
	for _, running := range []bool{false, true} {
		of := int32(none)
		for _, j := range b.jobs {
			if (joins || c.jobs[j].start != none) != running {
				continue
			}
			if of == none {
				of = s.newGang(name.queue)
				c.gangs[of].running, c.gangs[of].joined, c.gangs[of].label = running, joins, c.uniform(&c.jobs[j])
				b.gangs = append(b.gangs, of)
			}
			g := &c.gangs[of]
			g.members = append(g.members, j)
			c.jobs[j].gang = of
			if c.jobs[j].state == placed {
				g.have++
			}
			if c.jobs[j].start == none {
				s.unchecked = append(s.unchecked, j)
			}
		}
		if of != none {
			c.gangs[of].need = c.need(&c.gangs[of])
			s.attach(of)
		}
	}
}

func (s *Scheduler) newGang(q int32) int32 {
	c := s.c
	if n := len(s.spare.gangs); n > 0 {
		g := s.spare.gangs[n-1]
		s.spare.gangs = s.spare.gangs[:n-1]
		c.gangs[g] = gang{queue: q, members: c.gangs[g].members[:0]}
		if int(g) < len(s.outlook.tried) {
			s.outlook.tried[g] = 0
		}
		return g
	}
	c.gangs = append(c.gangs, gang{queue: q})
	return int32(len(c.gangs) - 1)
}

func (s *Scheduler) freeGang(g int32) { s.spare.gangs = append(s.spare.gangs, g) }

// find is where a gang stands in its queue, or is to stand.
func (s *Scheduler) find(g int32) int {
	c := s.c
	i, _ := slices.BinarySearchFunc(c.queues[c.gangs[g].queue].gangs, c.standsAt(g), func(other, at int32) int {
		return c.compareInQueue(c.standsAt(other), at)
	})
	return i
}

func (s *Scheduler) attach(g int32) {
	q := &s.c.queues[s.c.gangs[g].queue]
	q.gangs = slices.Insert(q.gangs, s.find(g), g)
	s.outlook.stale(s.c.gangs[g].queue)
}

func (s *Scheduler) detach(g int32) {
	q := &s.c.queues[s.c.gangs[g].queue]
	i := s.find(g)
	q.gangs = slices.Delete(q.gangs, i, i+1)
	s.outlook.stale(s.c.gangs[g].queue)
}
