package web

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Config configures the page. API, Now and Log are required.
type Config struct {
	API *api.Service // authenticates, answers about policies, and makes changes
	// Query answers about jobs and decisions. Without Jobs, the page says that this process has no job database.
	Query query.Source
	Now   func() time.Time
	Log   *slog.Logger
	// WriteTimeout is how long a client may take to read a page before it is disconnected; 0: 15 s.
	WriteTimeout time.Duration
	// Lookout leads from a job to Armada's Lookout, and Logs from a run to its logs.
	Lookout, Logs Link
}

const (
	pageTimeout   = 20 * time.Second
	whatIfTimeout = 2 * time.Minute
	writeTimeout  = 15 * time.Second
	maxAtOnce     = 32      // pages that are made at once
	maxEach       = 8       // pages that are made for, or being read by, one client
	maxForm       = 1 << 20 // bytes of a submitted form
)

// Open makes the page.
func Open(c Config) (*Site, error) {
	c.WriteTimeout = cmp.Or(c.WriteTimeout, writeTimeout)
	c.Query = c.Query.Limited(api.QueuesOf)
	s := &Site{Config: c, pages: map[string]*template.Template{}, rooms: [2]room{{slots: make(chan struct{}, maxAtOnce)}, {slots: make(chan struct{}, maxAtOnce)}}}
	layout, err := template.New("layout.html").Funcs(functions).Funcs(template.FuncMap{"passed": s.passed}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		t, err := layout.Clone()
		if err == nil {
			t, err = t.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
		s.pages[name] = t
	}
	if s.static, err = newAssets(); err != nil {
		return nil, err
	}
	s.routes = s.router()
	return s, nil
}

// Site serves the page.
type Site struct {
	Config
	pages  map[string]*template.Template
	static map[string]asset
	routes map[string]route
	rooms  [2]room // of pages that show, and of pages that change
}

// room bounds pages at once. Those that stop retries have their own: whatever others ask for cannot keep them out.
type room struct {
	slots  chan struct{} // pages being made
	shares api.Shares    // of pages being made or read
}

// view makes one page.
type view func(p *page) error

// route is what a path answers, and which parameters it knows: any other is refused, since a filter that is ignored gives
// another list than the one that was asked for.
type route struct {
	get, post view
	query     []string // parameters of the address
	form      []string // fields of the form that is posted
	stops     bool     // retries
}

func (s *Site) router() map[string]route {
	list := func(list string, more ...string) []string { return append(fieldNames(list), more...) }
	return map[string]route{
		"/":           {get: s.start, query: list(query.Decisions, "live", "seen", "repeats")},
		"/decisions":  {get: s.decisions, query: list(query.Decisions, "sort", "continue", "live", "seen", "repeats")},
		"/jobs":       {get: s.jobs, query: list(query.Jobs, "sort", "continue")},
		"/runs":       {get: s.runs, query: list(query.Runs, "sort", "continue")},
		"/groups":     {get: s.groups, query: list(query.Groups, "sort", "continue")},
		"/search":     {get: s.search, query: []string{"q", "kind", "continue"}},
		"/names":      {get: s.names, query: jobdb.Named},
		"/job":        {get: s.job, query: []string{"id", "partition", "live", "seen", "ordered"}},
		"/order":      {get: s.orderForm, post: s.order, query: []string{"do", "job"}, form: []string{"do", "job", "reason", "request", "confirm"}},
		"/explain":    {get: s.explain, query: []string{"id", "partition", "run", "why-not"}},
		"/group":      {get: s.group, query: []string{"queue", "set", "name"}},
		"/queue":      {get: s.queue, query: []string{"name", "set", "since"}},
		"/top":        {get: s.top, query: list(query.Decisions, "by")},
		"/policies":   {get: s.policies},
		"/policy":     {get: s.policy, query: []string{"kind", "name"}},
		"/generation": {get: s.generation, query: []string{"number", "against"}},
		"/whatif":     {get: s.whatIfForm, post: s.whatIf, query: []string{"rule", "limit", "set", "policies", "queue", "from", "to"}, form: []string{"rule", "limit", "set", "policies", "against", "queue", "from", "to"}},
		"/shadow":     {get: s.shadow, query: []string{"queue", "since"}},
		"/partitions": {get: s.partitions},
		"/overrides":  {get: s.overrides, post: s.override, query: []string{"do", "queue", "all", "category", "subcategory", "reason", "for", "done"}, form: []string{"do", "queue", "all", "category", "subcategory", "reason", "for", "request", "confirm"}, stops: true},
	}
}

func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_ = http.NewResponseController(w).SetWriteDeadline(s.Now().Add(s.WriteTimeout + whatIfTimeout))
	p := &page{site: s, r: r, status: http.StatusOK, leave: func() {}, fragment: r.Header.Get("HX-Request") == "true"}
	if a, ok := s.static[r.URL.Path]; ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.serve(w, r)
		return
	}
	defer func() { p.leave() }()
	if err := s.make(p); err != nil {
		if r.Context().Err() != nil {
			return // nobody reads it
		}
		p.fail(err)
	}
	p.send(w)
}

// make admits a request and makes its page.
func (s *Site) make(p *page) (err error) {
	if p.r, p.who, err = s.API.Admit(p.r); err != nil {
		return err
	}
	at, ok := s.routes[p.r.URL.Path]
	if !ok {
		return problem{http.StatusNotFound, "There is no such page", fmt.Sprintf("Nothing is at %s.", p.r.URL.Path), nil}
	}
	do := at.get
	switch p.r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		do = at.post
	default:
		do = nil
	}
	if do == nil {
		p.allow = "GET, HEAD"
		if at.post != nil {
			p.allow += ", POST"
		}
		return problem{http.StatusMethodNotAllowed, "Method not allowed", fmt.Sprintf("%.20s is not allowed for %s; it answers %s.", p.r.Method, p.r.URL.Path, p.allow), nil}
	}
	made, err := s.enter(p, &at)
	if err != nil {
		return err
	}
	defer made()
	defer func() {
		if x := recover(); x != nil {
			s.Log.Error("page failed", slog.String("path", p.r.URL.Path), slog.Any("panic", x))
			err = problem{http.StatusInternalServerError, "This page failed", "The server failed on this request; its log says more.", nil}
		}
	}()
	limit := pageTimeout
	if p.r.URL.Path == "/whatif" {
		limit = whatIfTimeout
	}
	ctx, cancel := context.WithTimeout(p.r.Context(), limit)
	defer cancel()
	p.ctx = ctx
	if err := p.parse(&at); err != nil {
		return err
	}
	if err = do(p); errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && p.r.Context().Err() == nil {
		return problem{http.StatusGatewayTimeout, "This took too long", fmt.Sprintf("The answer was not there within %v. Ask for less: a shorter time, or one queue.", limit), err}
	}
	return err
}

// enter admits a page: its client has another one until p.leave, and it has a slot until made.
func (s *Site) enter(p *page, at *route) (made func(), err error) {
	busy := problem{http.StatusServiceUnavailable, "Too many requests at once", "Try again in a moment.", nil}
	in := &s.rooms[0]
	if at.stops {
		in = &s.rooms[1]
	}
	leave, _ := in.shares.Take(api.ClientOf(p.r.Context()), math.MaxInt, maxEach)
	if leave == nil {
		return nil, busy
	}
	select {
	case in.slots <- struct{}{}:
	default:
		leave()
		return nil, busy
	}
	p.leave = leave
	return func() { <-in.slots }, nil
}

// send writes the page that was made.
func (p *page) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.to != "" {
		h.Set("Location", p.to)
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if p.status == http.StatusUnauthorized && !p.site.API.Auth.OnPage() {
		h.Set("WWW-Authenticate", `Basic realm="Refloat", charset="UTF-8"`)
	}
	if p.unchanged {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	t, name := p.site.pages[p.template], "layout.html"
	if p.fragment && p.live != "" && p.status == http.StatusOK {
		name = p.live
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(p.site.Now().Add(p.site.WriteTimeout))
	w.WriteHeader(p.status)
	to := &client{to: w}
	if err := t.ExecuteTemplate(to, name, p); err != nil && to.err == nil {
		p.site.Log.Error("page failed", slog.String("path", p.r.URL.Path), slog.Any("error", err))
		panic(http.ErrAbortHandler) // its beginning may be on its way: what is cut off must not look complete
	}
}

// client is who reads a page. It gets the beginning while the rest is still made.
type client struct {
	to  io.Writer
	err error // it is gone, or reads too slowly
}

func (c *client) Write(b []byte) (n int, err error) {
	n, err = c.to.Write(b)
	if err != nil {
		c.err = err
	}
	return n, err
}
