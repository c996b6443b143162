package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

// page is a request and what is shown for it.
type page struct {
	site     *Site
	r        *http.Request
	ctx      context.Context
	who      api.Principal
	form     url.Values // of the query, or of a submitted form
	fragment bool       // only what changes by itself is asked for
	leave    func()     // after it was sent

	status    int
	allow     string // the methods of a page that was asked by another
	to        string // where the browser goes instead
	template  string
	live      string // the template of what changes by itself
	unchanged bool   // what changes by itself did not

	Title string
	Here  string // the entry of the navigation
	Data  any
}

// problem is an error that has a page of its own.
type problem struct {
	code        int
	title, text string
	cause       error
}

func (e problem) Error() string { return e.title + ": " + e.text }

func (e problem) Unwrap() error { return e.cause }

// show sets what is shown.
func (p *page) show(template, title, here string, data any) error {
	p.template, p.Title, p.Here, p.Data = template, title, here, data
	return nil
}

// failure is what the page of an error shows.
type failure struct {
	Code  int
	Text  []string
	Retry bool
	// SignIn is where somebody signs in who has not, or whose session has ended.
	SignIn string
}

// fail shows an error instead.
func (p *page) fail(err error) {
	f := failure{Code: http.StatusInternalServerError, Text: strings.Split(err.Error(), "\n")}
	title := "This page failed"
	var own problem
	var invalid *query.Invalid
	var missing *query.NotFound
	switch {
	case errors.As(err, &own):
		f.Code, title, f.Text = own.code, own.title, []string{own.text}
	case errors.As(err, &invalid):
		f.Code, title = http.StatusBadRequest, "Refloat cannot read this request"
	case errors.As(err, &missing):
		f.Code, title = http.StatusNotFound, "Not found"
	case errors.Is(err, query.ErrAllQueues):
		f.Code, title, f.Text = http.StatusForbidden, "You may not do this", []string{sentence(err.Error())}
	case errors.Is(err, query.ErrNoLogs), errors.Is(err, query.ErrNoPolicies):
		f.Code, title = http.StatusNotImplemented, "This process cannot answer that"
	case errors.Is(err, query.ErrBusy):
		f.Code, title, f.Text = http.StatusServiceUnavailable, "Others are reading the logs now", []string{sentence(err.Error())}
	case errors.Is(err, jobdb.ErrUnavailable):
		f.Code, title = http.StatusServiceUnavailable, "The job database does not answer"
	default:
		if code, message, ok := api.Refusal(err); ok {
			f.Code, f.Text = code, []string{message}
			switch code {
			case http.StatusUnauthorized:
				title = "Sign in"
			case http.StatusForbidden:
				title = "You may not do this"
			case http.StatusNotFound:
				title = "Not found"
			case http.StatusBadRequest:
				title = "Refloat cannot read this request"
			}
		} else {
			p.site.Log.Error("page failed", slog.String("path", p.r.URL.Path), slog.Any("error", err))
		}
	}
	f.Retry = f.Code == http.StatusServiceUnavailable || f.Code == http.StatusGatewayTimeout
	p.status, p.to, p.live, p.unchanged = f.Code, "", "", false
	if f.Code == http.StatusUnauthorized && p.site.API.Auth.OnPage() && p.r.Header.Get("Authorization") == "" {
		f.SignIn = api.SignInPath + "login"
		if p.r.Method == http.MethodGet && !p.fragment {
			p.to = link(f.SignIn, "to", p.r.URL.RequestURI())
		}
	}
	_ = p.show("error", title, p.Here, f)
}

// parse reads the query, or the form of a POST, which has none.
func (p *page) parse(at *route) error {
	bad := func(code int, text string, err error) error {
		return problem{code, "Refloat cannot read this request", text, err}
	}
	asked, err := url.ParseQuery(p.r.URL.RawQuery)
	if err != nil {
		return bad(http.StatusBadRequest, "The query of the address is malformed.", err)
	}
	known := at.query
	if p.form = asked; p.r.Method == http.MethodPost {
		if kind, _, _ := strings.Cut(p.r.Header.Get("Content-Type"), ";"); kind != "application/x-www-form-urlencoded" {
			return bad(http.StatusUnsupportedMediaType, "A form is expected.", nil)
		}
		if len(asked) > 0 {
			return bad(http.StatusBadRequest, "A form is posted to an address without parameters.", nil)
		}
		p.r.Body = http.MaxBytesReader(nil, p.r.Body, maxForm)
		if err := p.r.ParseForm(); err != nil {
			return bad(http.StatusBadRequest, "The form is malformed, or larger than 1 MiB.", err)
		}
		p.form, known = p.r.PostForm, at.form
	}
	for _, name := range slices.Sorted(maps.Keys(p.form)) {
		values := p.form[name]
		switch {
		case !utf8.ValidString(name + strings.Join(values, "")):
			return bad(http.StatusBadRequest, "A value is not UTF-8.", nil)
		case !slices.Contains(known, name):
			return &query.Invalid{Err: suggest.Unknown("parameter", clip(name, 60), known...)}
		case len(values) > 1:
			return &query.Invalid{Param: name, Err: fmt.Errorf("given %d times: give it once", len(values))}
		}
	}
	return nil
}

// arg returns a value of the query or form, without space around it.
func (p *page) arg(name string) string { return strings.TrimSpace(p.form.Get(name)) }

// Asked returns the text of the search field.
func (p *page) Asked() string {
	if p.form == nil || p.r.URL.Path != "/search" {
		return ""
	}
	return p.arg("q")
}

// with returns the address of this page with other values; an empty value removes one.
func (p *page) with(pairs ...string) string { return p.on(p.r.URL.Path, pairs...) }

// on returns the address of a page with the values of this one and others.
func (p *page) on(path string, pairs ...string) string {
	v := url.Values{}
	for name, values := range p.form {
		if name != "seen" && len(values) > 0 && values[0] != "" {
			v[name] = values
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Del(pairs[i])
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return address(path, v)
}

func address(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// link returns an address; pairs without a value are left out.
func link(path string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return address(path, v)
}

// Nav is the navigation.
func (p *page) Nav() []navEntry {
	return []navEntry{
		{"/", "Start"},
		{"/decisions", "Decisions"},
		{"/jobs", "Jobs"},
		{"/runs", "Runs"},
		{"/groups", "Groups"},
		{"/top", "Top"},
		{"/policies", "Policies"},
		{"/whatif", "What-if"},
		{"/shadow", "Shadow"},
		{"/partitions", "Partitions"},
		{"/overrides", "Kill and pause"},
	}
}

type navEntry struct{ Path, Name string }

// Who is the signed-in user; "": nobody signs in here.
func (p *page) Who() string {
	if !p.who.Verified {
		return ""
	}
	return p.who.Name
}

// SignedIn reports whether the caller signed in on the page, and can sign out.
func (p *page) SignedIn() bool {
	return p.who.Verified && p.site.API.Auth.OnPage() && p.r.Header.Get("Authorization") == ""
}

// InForce lists the overrides of queues that hold now, for the notice on each page.
func (p *page) InForce() []override {
	if p.status == http.StatusUnauthorized || p.status == http.StatusForbidden || p.site.API.Store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.r.Context(), time.Second)
	defer cancel()
	list, err := p.site.API.List(ctx, &pb.ListRequest{})
	if err != nil {
		return nil // the page itself says so where it matters
	}
	return slices.DeleteFunc(p.site.overridesOf(list.Brakes), func(o override) bool { return o.Node != "" })
}

// Live is how a part updates itself: from where, and how often.
type live struct {
	ID, URL, Every string
	On             bool
	Switch         string // the address that switches it on or off
}

// liveFrom returns how a part updates itself. seen is what it shows now; an update of the same is not sent.
func (p *page) liveFrom(id, template, every string, seen any) live {
	l := live{ID: id, Every: every, On: p.arg("live") != "off"}
	sum := sha256.Sum256(fmt.Append(nil, seen))
	now := hex.EncodeToString(sum[:8])
	p.live = template
	p.unchanged = p.fragment && p.arg("seen") == now
	l.URL = p.with("seen", now)
	if l.Switch = p.with("live", "off"); !l.On {
		l.Switch = p.with("live", "")
	}
	return l
}

// table is a table of any list.
type table struct {
	Caption string
	Columns []column
	Rows    [][]cell
	Empty   string // said where there are no rows
	Next    string // the address of the next page
	First   string // that of the first page, on later ones
	Now     live
}

type column struct {
	Name, Class string
	Sort        string // the address of the list in this order
	Sorted      string // ascending or descending: it is in this order
}

// cell is a value in a table. Only one of Badge, Time and Text is shown.
type cell struct {
	Text  string
	Link  string
	Class string
	Badge string // the class of a badge around the text
	Time  string // RFC 3339
	Note  string // below it
	Spark *spark
	// NoteLink is where the note leads; "": nowhere.
	NoteLink string
	Title    string
	Share    float64 // of a bar, 0 to 100; with a Text
	Bar      bool
}

func text(s string) cell         { return cell{Text: s} }
func mono(s string) cell         { return cell{Text: s, Class: "mono"} }
func number(n any) cell          { return cell{Text: fmt.Sprint(n), Class: "num"} }
func at(t string) cell           { return cell{Time: t, Class: "time"} }
func linked(s, to string) cell   { return cell{Text: s, Link: to} }
func named(s, to string) cell    { return cell{Text: s, Link: to, Class: "name", Title: s} }
func badge(s, class string) cell { return cell{Text: s, Badge: class} }
func columns(names ...string) []column {
	all := make([]column, len(names))
	for i, n := range names {
		n, right := strings.CutSuffix(n, ">") // numbers stand to the right
		all[i].Name = n
		if right {
			all[i].Class = "num"
		}
	}
	return all
}

var functions = template.FuncMap{
	// day and clock show a time: its day, and its time of the day in UTC.
	"day":   func(t string) string { return part(t, "2006-01-02") },
	"clock": func(t string) string { return part(t, "15:04:05") },
	// full is a time in full.
	"full": func(t string) string { return part(t, "2006-01-02 15:04:05.999 UTC") },
	"link": link,
	// width is that of a bar, in its own units.
	"width": func(share float64) string { return fmt.Sprintf("%.1f", share) },
	"short": short,
	"kind":  kind,
	"part":  tableOf,
	"lines": func(s string) []string { return strings.Split(s, "\n") },
	"add":   func(a, b int) int { return a + b },
	"arr":   func(all ...any) []any { return all },
}

// passed is how long ago a time was when the page was made. static/times.js, which keeps it up to date, has the same words.
type passed struct {
	At, Text string
	Seconds  int64 // below 0: until it comes
}

// passed returns nil for what is no time.
func (s *Site) passed(t string) *passed {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return nil
	}
	d := s.Now().Sub(at)
	p := &passed{At: t, Seconds: int64(d / time.Second)}
	n, unit := d.Abs(), "s"
	of := time.Second
	switch {
	case n >= 48*time.Hour:
		unit, of = "days", 24*time.Hour
	case n >= time.Hour:
		unit, of = "h", time.Hour
	case n >= time.Minute:
		unit, of = "min", time.Minute
	}
	if p.Text = fmt.Sprintf("%d %s ago", n/of, unit); p.Seconds < 0 {
		p.Text = fmt.Sprintf("in %d %s", n/of, unit)
	}
	return p
}

func part(t, layout string) string {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return t
	}
	return at.UTC().Format(layout)
}

// short shortens an id for a narrow place.
func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:39]) + "…"
	}
	return s
}

// size formats a count with thin spaces between thousands.
func size(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// tableOf returns the table of a page that updates itself.
func tableOf(data any) table {
	switch d := data.(type) {
	case *listing:
		return d.Table
	case startPage:
		return d.Newest.Table
	}
	return table{}
}

// sentence makes a sentence of a clause, as errors have it.
func sentence(clause string) string {
	if clause == "" {
		return ""
	}
	return upper(clause) + "."
}

// upper begins a clause, which is not empty, with a capital.
func upper(clause string) string { return strings.ToUpper(clause[:1]) + clause[1:] }
