package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	browserOnce sync.Once
	browser     context.Context // of the one browser that all tests share
	browserErr  error
	stopBrowser = func() {}
)

// patience limits what a test does in the browser: far longer than it takes on a slow machine.
const patience = 5 * time.Minute

// tab opens a tab in the browser. What goes wrong in its pages fails the test.
func tab(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("REQUIRE_INTEGRATION") == "1" {
			t.Fatal("chromium is missing, and REQUIRE_INTEGRATION=1")
		}
		t.Skip("SKIP: chromium is missing; apt-get install chromium")
	}
	browserOnce.Do(func() {
		var dir string
		if dir, browserErr = os.MkdirTemp("", "refloat-chromium-"); browserErr != nil {
			return
		}
		allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.Flag("disable-gpu", true), chromedp.WSURLReadTimeout(patience),
			chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))...)
		var end context.CancelFunc
		browser, end = chromedp.NewContext(allocator)
		stopBrowser = func() {
			end()
			cancel()
			_ = os.RemoveAll(dir)
		}
		browserErr = chromedp.Do(browser)
	})
	if browserErr != nil {
		t.Fatalf("chromium: %v", browserErr)
	}
	open, closeTab := chromedp.NewContext(browser)
	if err := chromedp.Do(open); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(open, patience)
	var mu sync.Mutex
	var faults []string
	if err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			faults = append(faults, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				faults = append(faults, fmt.Sprintf("console: %s %+v", e.Type, e.Args))
			}
		case *log.EventEntryAdded:
			// An error page is an error to the browser too.
			if e.Entry.Level == "error" && !strings.Contains(e.Entry.URL, "/nope") {
				faults = append(faults, "log: "+e.Entry.Text+" "+e.Entry.URL)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	act(ctx, t, command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}))
	t.Cleanup(func() {
		cancel()
		closeTab()
		mu.Lock()
		defer mu.Unlock()
		for _, f := range faults {
			t.Errorf("%.500s", f)
		}
	})
	return ctx
}

// act does things in a tab. An action on a node that has just been replaced, or whose page has just been left, is tried
// again.
func act(ctx context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for _, a := range actions {
		for deadline := time.Now().Add(patience); ; {
			err := chromedp.Do(ctx, a)
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), "node with given id") || time.Now().After(deadline) {
				t.Fatal(err)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
}

// command is a command of the protocol without an answer.
func command[P any](c cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// get asks a tab for a value.
func get[T any](ctx context.Context, t *testing.T, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// until polls until an expression of JavaScript is true.
func until(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if is {
			return
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			at, _ := chromedp.Run(ctx, chromedp.Location())
			body, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 500)`))
			t.Fatalf("never true: %s (%v) at %s: %s", expression, err, at, body)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func media(scheme string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// violation is a finding of axe-core.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

const (
	allRules = `axe.run(document, {resultTypes: ["violations"], elementRef: false}).then(r => JSON.stringify(r.violations))`
	oneRule  = `axe.run(document, {runOnly: ["color-contrast"], resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`
	fewRows  = `document.querySelectorAll("tbody").forEach(b => [...b.rows].slice(2).forEach(r => r.remove())); document.querySelectorAll(".story, .grid").forEach(l => [...l.children].slice(0, -4).forEach(e => e.remove()))`
	openAll  = `document.querySelectorAll("details").forEach(d => d.open = true)`
	tooWide  = `[document.documentElement.scrollWidth, innerWidth, [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(e).position != "absolute").slice(0, 3).map(e => e.outerHTML.slice(0, 150)).join(" | ")].join(" ")`
	// faintEdges are boxes of which neither the edge nor the inside stands out from what is around them. Lines between rows are no boxes.
	faintEdges = `(() => {
		const numbers = (c) => c.match(/[\d.]+/g).map(Number);
		const clear = (c) => numbers(c)[3] === 0;
		const light = (c) => numbers(c).slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
		const ratio = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
		const around = (e) => { for (e = e.parentElement; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!clear(c)) return c } return "rgb(255, 255, 255)" };
		return [...document.querySelectorAll("body *")].filter(e => {
			const s = getComputedStyle(e);
			const edges = ["Top", "Right", "Bottom", "Left"].filter(side => parseFloat(s["border" + side + "Width"]) > 0);
			if (edges.length < 4 || s.visibility !== "visible" || !e.getClientRects().length) return false;
			const out = around(e), inside = clear(s.backgroundColor) ? out : s.backgroundColor;
			return edges.some(side => { const c = s["border" + side + "Color"]; return ratio(clear(c) ? inside : c, out) < 3 });
		}).slice(0, 3).map(e => e.outerHTML.slice(0, 150)).join(" | ");
	})()`
	noRunaway = `document.documentElement.scrollWidth <= innerWidth`
)

func findings(ctx context.Context, t *testing.T, script, what string) {
	t.Helper()
	found := get(ctx, t, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	var all []violation
	if err := json.Unmarshal([]byte(found), &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Impact == "serious" || v.Impact == "critical" {
			t.Errorf("%s: %s (%s): %s: %d times, such as %.300s %s", what, v.ID, v.Impact, v.Help, len(v.Nodes), v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
		}
	}
}

// Each view is accessible, light and dark, narrow and wide; it does not scroll sideways, runs no text of users as code,
// and breaks no rule of its own security policy.
func TestViews(t *testing.T) {
	t.Parallel()
	d := running(t)
	ctx := tab(t)
	axe, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("REFLOAT_SCREENSHOTS")
	routes := pageRoutes(t)
	for i, path := range views() {
		still := "" // without what changes by itself
		if at, query, _ := strings.Cut(path, "?"); slices.Contains(routes[at][0], "live") {
			still = "?live=off"
			if query != "" {
				still = "&live=off"
			}
		}
		name := fmt.Sprintf("%02d%s", i, strings.Map(func(r rune) rune {
			if r == '/' || r == '?' {
				return '-'
			}
			return r
		}, strings.SplitN(path, "?", 2)[0]))
		act(ctx, t, media("light"), chromedp.EmulateViewport(1280, 900), chromedp.Navigate(d.url+path+still))
		if strings.HasPrefix(path, "/whatif") {
			act(ctx, t, chromedp.Click(chromedp.CSS("form.whatif button")))
			until(ctx, t, `document.querySelector("#answer")`)
		}
		check := func(width int64, scheme string) {
			act(ctx, t, chromedp.EmulateViewport(width, 900), media(scheme))
			if !get(ctx, t, chromedp.Evaluate[bool](noRunaway)) {
				t.Errorf("%s at %d px scrolls sideways: %s", path, width, get(ctx, t, chromedp.Evaluate[string](tooWide)))
			}
			if shots != "" {
				png := get(ctx, t, chromedp.CaptureScreenshot())
				if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), png, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		check(1280, "light")
		check(360, "dark")
		check(360, "light")
		// Rows are alike, so few are enough, and much faster.
		get(ctx, t, chromedp.Evaluate[int](fewRows+";"+openAll+";"+string(axe)+";0"))
		findings(ctx, t, allRules, path+" narrow and light")
		act(ctx, t, media("dark"), chromedp.EmulateViewport(1280, 900))
		findings(ctx, t, oneRule, path+" wide and dark")
		faint := get(ctx, t, chromedp.Evaluate[string](faintEdges))
		act(ctx, t, media("light"))
		if faint += get(ctx, t, chromedp.Evaluate[string](faintEdges)); faint != "" {
			t.Errorf("%s: edges that do not stand out by 3:1, dark or light: %s", path, faint)
		}
		if get(ctx, t, chromedp.Evaluate[bool](`!!window.hacked || document.querySelectorAll("main img, main script, main [onerror]").length > 0`)) {
			t.Errorf("%s: a text of a user is not escaped", path)
		}
	}
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	d := running(t)
	ctx := tab(t)
	act(ctx, t, chromedp.Navigate(d.url+"/top"), chromedp.KeyEvent(kb.Tab))
	until(ctx, t, `document.activeElement.className == "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	act(ctx, t, chromedp.KeyEvent(kb.Enter))
	until(ctx, t, `document.activeElement.id == "main"`)
	act(ctx, t, chromedp.Navigate(d.url+"/"))
	for range 14 { // the skip link, the name, eleven views, and the search field
		act(ctx, t, chromedp.KeyEvent(kb.Tab))
	}
	until(ctx, t, `document.activeElement.id == "q"`)
	act(ctx, t, chromedp.KeyEvent("01m7xn681y99tqr9907k6hqh4"), chromedp.KeyEvent(kb.Enter))
	until(ctx, t, `location.pathname == "/job" && document.querySelector("h1").innerText.includes("01m7xn681y99tqr9907k6hqh4d")`)
	act(ctx, t, chromedp.Focus(chromedp.CSS("details summary")), chromedp.KeyEvent(kb.Enter))
	until(ctx, t, `document.querySelector("details").open && document.querySelector(".ladder .hit")`)
	act(ctx, t, chromedp.Navigate(d.url+"/decisions"), chromedp.Focus(chromedp.CSS("#f-rule")), chromedp.KeyEvent("oom"), chromedp.KeyEvent(kb.Enter))
	until(ctx, t, `location.search.includes("rule=oom") && document.querySelectorAll("tbody tr").length == 3`)
}

func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := newSmall(t)
	ctx := tab(t)
	act(ctx, t, chromedp.EmulateViewport(1280, 900), command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}),
		chromedp.Navigate(s.URL+"/overrides"), chromedp.Click(chromedp.CSS(`input[value=pause]`)), chromedp.Click(chromedp.CSS(`input[name=all]`)), chromedp.SendKeys(chromedp.CSS("#reason"), printable), chromedp.Submit(chromedp.CSS("#reason")))
	until(ctx, t, `document.querySelector("form.confirm")`)
	act(ctx, t, chromedp.Click(chromedp.CSS("form.confirm button")))
	until(ctx, t, `location.search == "?done=1" && document.querySelector("aside.notice").innerText.includes("paused until") && document.querySelector("aside.notice").innerText.includes("<script>")`)
	act(ctx, t, chromedp.Click(chromedp.CSS("aside.notice a")))
	until(ctx, t, `document.querySelector("input[value=resume]:checked") && document.querySelector("input[name=all]:checked")`)
	d := running(t)
	act(ctx, t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(d.url+"/jobs?queue=genomics"), chromedp.Click(chromedp.CSS("th a")))
	until(ctx, t, `location.search.includes("sort=") && document.querySelector("th[aria-sort]")`)
	act(ctx, t, chromedp.Navigate(d.url+"/jobs"), chromedp.Click(chromedp.CSS("a[rel=next]")))
	until(ctx, t, `location.search.includes("continue=")`)
}

// TestLocalTime: beside UTC stands how long ago a time was, and with JavaScript the local time, also in what updates itself.
func TestLocalTime(t *testing.T) {
	t.Parallel()
	d := running(t)
	ctx := tab(t)
	const job = "01m7xn681y99tqr9907k6hqh4d"
	act(ctx, t, command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}), chromedp.Navigate(d.url+"/decisions?job="+job))
	until(ctx, t, `document.querySelector("footer").innerText == "Times are UTC. Local times are of Asia/Calcutta."`)
	const both = `[...document.querySelectorAll("td.time")].every(td => {
		const utc = new Date(td.querySelector("time").dateTime), here = new Date(utc.getTime() + 19800e3).toISOString().slice(0, 19).replace("T", " ");
		return td.querySelector("time").innerText == utc.toISOString().slice(0, 19).replace("T", " ") && /^\d+ days ago, local /.test(td.querySelector(".beside").innerText) && here.endsWith(td.querySelector(".beside").innerText.split("local ")[1]);
	})`
	until(ctx, t, both)
	until(ctx, t, `(document.querySelector("#main tbody").outerHTML = document.querySelector("#main tbody").outerHTML.replaceAll(/, local [^<]*/g, "")) && true`)
	until(ctx, t, both)
	act(ctx, t, command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}), chromedp.Navigate(d.url+"/decisions?job="+job))
	until(ctx, t, `document.readyState == "complete" && document.querySelector("footer").innerText == "Times are UTC." && [...document.querySelectorAll("td.time .beside")].every(e => /^\d+ days ago$/.test(e.innerText))`)
}

// newest is the last job that TestLive planted, which runs again with -count.
var newest = 99

// A new decision appears by itself, and nothing else moves.
func TestLive(t *testing.T) {
	d := running(t) // not parallel: other tests count rows
	ctx := tab(t)
	act(ctx, t, chromedp.Navigate(d.url+"/decisions"), chromedp.Focus(chromedp.CSS("#f-queue")), chromedp.KeyEvent("gen"))
	newest += 3 // so that it is Queued, as other tests count the failed ones
	if err := plant(t.Context(), d.dir, newest, 1); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, fmt.Sprintf(`document.querySelector("tbody").innerText.includes("hostile-%04d")`, newest))
	until(ctx, t, `document.activeElement.id == "f-queue" && document.activeElement.value == "gen" && !window.hacked`)
}
