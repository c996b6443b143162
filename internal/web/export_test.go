package web

import "net/http"

// Routes lists the parameters that each page takes: of its address, and of the form that is posted to it.
func Routes(h http.Handler) map[string][2][]string {
	all := map[string][2][]string{}
	for path, r := range h.(*site).routes {
		all[path] = [2][]string{r.query, r.form}
	}
	return all
}
