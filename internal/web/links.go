package web

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/refloat/refloat/internal/suggest"
)

// A Link leads from what the page shows to another system, such as Armada's Lookout or the logs of pods. Its zero value leads
// nowhere.
type Link struct{ template string }

// places are what the template of a Link may name.
var places = []string{"job", "run", "pod", "namespace", "node", "queue", "jobset", "from", "to"}

var place = regexp.MustCompile(`\{([^{}]*)\}`)

// ParseLink reads the template of an address: an http or https one, in which {job}, {run}, {pod}, {namespace}, {node}, {queue},
// {jobset}, {from} and {to} (times in RFC 3339) are replaced by values, escaped. They may be in its path, query and fragment.
// An empty text is a Link that leads nowhere.
func ParseLink(text string) (Link, error) {
	if text == "" {
		return Link{}, nil
	}
	found := place.FindAllStringSubmatch(text, -1)
	for _, m := range found {
		if !slices.Contains(places, m[1]) {
			return Link{}, suggest.Unknown("placeholder", m[1], places...)
		}
	}
	at, err := url.Parse(place.ReplaceAllString(text, "x"))
	switch {
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return Link{}, fmt.Errorf("%q: want an http or https address, such as https://lookout.example.com/?job={job}", text)
	case len(found) == 0:
		return Link{}, fmt.Errorf("%q: it names nothing: use a placeholder such as {job}", text)
	case strings.ContainsAny(place.ReplaceAllString(text, ""), "{}"):
		return Link{}, fmt.Errorf("%q: a brace is open", text)
	}
	base := text
	if i := strings.Index(text, "://"); i >= 0 {
		base = text[:i+3] + strings.FieldsFunc(text[i+3:], func(r rune) bool { return strings.ContainsRune("/?#", r) })[0]
	}
	if strings.ContainsAny(base, "{}") || at.User != nil {
		return Link{}, fmt.Errorf("%q: a host or a password is no place for a placeholder", text)
	}
	return Link{text}, nil
}

// to returns the address for these values of places; "": the link leads nowhere, or a value that it needs is unknown.
func (l Link) to(values map[string]string) string {
	unknown := false
	address := place.ReplaceAllStringFunc(l.template, func(name string) string {
		value := values[name[1:len(name)-1]]
		unknown = unknown || value == ""
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	})
	if unknown {
		return ""
	}
	return address
}

// command returns a command to be copied into a shell; "": a word of it is empty, begins like a flag, or holds what a terminal
// would act on.
func command(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return ""
		}
		quoted[i] = w
		if strings.ContainsFunc(w, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@+,=%", r)
		}) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// naming returns a command about things, which must not look like flags.
func naming(verb []string, things ...string) string {
	for _, t := range things {
		if strings.HasPrefix(t, "-") {
			return ""
		}
	}
	return command(append(verb, things...)...)
}

// elsewhere are ways from something on a page to other systems.
type elsewhere struct {
	Links    []choice
	Commands []string
}

func (e *elsewhere) link(name, to string) {
	if to != "" {
		e.Links = append(e.Links, choice{Name: name, Link: to})
	}
}

func (e *elsewhere) command(text string) {
	if text != "" {
		e.Commands = append(e.Commands, text)
	}
}

// ofJob are the ways from a job.
func (s *Site) ofJob(id, queue, set string) (e elsewhere) {
	e.link("Lookout", s.Lookout.to(map[string]string{"job": id, "queue": queue, "jobset": set}))
	e.command(naming([]string{"armadactl", "get", "job-report"}, id))
	e.command(naming([]string{"armadactl", "watch"}, queue, set))
	return e
}

// ofRun are the ways from a run with its pod; "": it is unknown.
func (s *Site) ofRun(values map[string]string) (e elsewhere) {
	e.link("Logs", s.Logs.to(values))
	for _, verb := range []string{"logs", "describe pod"} {
		words := append([]string{"kubectl"}, strings.Fields(verb)...)
		if ns := values["namespace"]; ns != "" {
			words = append(words, "--namespace="+ns)
		}
		e.command(naming(words, values["pod"]))
	}
	e.command(naming([]string{"kubectl", "describe", "node"}, values["node"]))
	return e
}
