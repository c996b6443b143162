package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/api"
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
	// Partitions returns what this process knows about each partition; nil: nothing.
	Partitions func(ctx context.Context) ([]Partition, error)
	Now        func() time.Time
	Log        *slog.Logger
}

// Partition is a partition as this process sees it.
type Partition struct {
	Number     int
	Owner      string // "": not this process
	Generation uint64 // of the policies in force; 0: unknown here
	Since      int64  // when that generation came into force, Unix nanoseconds
	Lag        *float64
	Behind     *float64 // messages
}

const (
	pageTimeout   = 20 * time.Second
	whatIfTimeout = 2 * time.Minute
	writeTimeout  = 15 * time.Second // for a client that reads slowly
	maxAtOnce     = 32               // pages that are made at once
	maxPerPeer    = 8                // of them, for one address
	maxForm       = 1 << 20          // bytes of a submitted form
)

// Handler serves the page.
func Handler(c Config) (http.Handler, error) {
	s := &site{Config: c, pages: map[string]*template.Template{}, peers: map[string]int{}, slots: make(chan struct{}, maxAtOnce), whatIfs: make(chan struct{}, 1)}
	layout, err := template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
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

type site struct {
	Config
	pages   map[string]*template.Template
	static  map[string]asset
	routes  map[string]route
	slots   chan struct{}
	whatIfs chan struct{}

	mu    sync.Mutex
	peers map[string]int // pages being made, by address
	sums  summaryCache
}

// view makes one page.
type view func(p *page) error

// route is what a path answers.
type route struct{ get, post view }

func (s *site) router() map[string]route {
	return map[string]route{
		"/":           {get: s.start},
		"/decisions":  {get: s.decisions},
		"/jobs":       {get: s.jobs},
		"/runs":       {get: s.runs},
		"/groups":     {get: s.groups},
		"/search":     {get: s.search},
		"/job":        {get: s.job},
		"/explain":    {get: s.explain},
		"/group":      {get: s.group},
		"/queue":      {get: s.queue},
		"/top":        {get: s.top},
		"/policies":   {get: s.policies},
		"/policy":     {get: s.policy},
		"/generation": {get: s.generation},
		"/whatif":     {get: s.whatIf, post: s.whatIf},
		"/shadow":     {get: s.shadow},
		"/partitions": {get: s.partitions},
		"/overrides":  {get: s.overrides, post: s.override},
	}
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_ = http.NewResponseController(w).SetWriteDeadline(s.Now().Add(writeTimeout + whatIfTimeout))
	p := &page{site: s, r: r, status: http.StatusOK, fragment: r.Header.Get("HX-Request") == "true"}
	p.peer, _, _ = net.SplitHostPort(r.RemoteAddr)
	if a, ok := s.static[r.URL.Path]; ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.serve(w, r)
		return
	}
	if err := s.make(p); err != nil {
		if r.Context().Err() != nil {
			return // nobody reads it
		}
		p.fail(err)
	}
	p.send(w)
}

// make admits a request and makes its page.
func (s *site) make(p *page) (err error) {
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
	leave, err := s.enter(p)
	if err != nil {
		return err
	}
	defer leave()
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
	if err := p.parse(); err != nil {
		return err
	}
	if err = do(p); errors.Is(err, context.DeadlineExceeded) && p.r.Context().Err() == nil {
		return problem{http.StatusGatewayTimeout, "This took too long", fmt.Sprintf("The answer was not there within %v. Ask for less: a shorter time, or one queue.", limit), err}
	}
	return err
}

// enter takes a slot for a page; leave frees it.
func (s *site) enter(p *page) (leave func(), err error) {
	busy := problem{http.StatusServiceUnavailable, "Too many requests at once", "Try again in a moment.", nil}
	s.mu.Lock()
	if s.peers[p.peer] >= maxPerPeer {
		s.mu.Unlock()
		return nil, busy
	}
	s.peers[p.peer]++
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.peers[p.peer]--; s.peers[p.peer] == 0 {
			delete(s.peers, p.peer)
		}
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots; left() }, nil
	default:
		left()
		return nil, busy
	}
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
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="Refloat", charset="UTF-8"`)
	}
	if p.unchanged {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var b bytes.Buffer
	t, name := p.site.pages[p.template], "layout.html"
	if p.fragment && p.live != "" && p.status == http.StatusOK {
		name = p.live
	}
	if err := t.ExecuteTemplate(&b, name, p); err != nil {
		p.site.Log.Error("page failed", slog.String("path", p.r.URL.Path), slog.Any("error", err))
		http.Error(w, "The server failed on this page; its log says more.", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(p.site.Now().Add(writeTimeout))
	w.WriteHeader(p.status)
	if p.r.Method != http.MethodHead {
		_, _ = w.Write(b.Bytes())
	}
}
