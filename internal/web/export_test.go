package web

// Passed says how long ago a time was.
func (s *Site) Passed(t string) string {
	if p := s.passed(t); p != nil {
		return p.Text
	}
	return ""
}

// Routes lists the parameters that each page takes: of its address, and of the form that is posted to it.
func Routes(s *Site) map[string][2][]string {
	all := map[string][2][]string{}
	for path, r := range s.routes {
		all[path] = [2][]string{r.query, r.form}
	}
	return all
}
