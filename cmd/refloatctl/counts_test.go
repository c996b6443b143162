package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/web"
)

// tally counts decisions by what became of them.
type tally struct{ retried, failed, shadow, superseded int }

func (n tally) all() int    { return n.retried + n.failed + n.shadow + n.superseded }
func (n tally) effect() int { return n.retried + n.failed }

// decidedCounts are decisions, counted one by one from what `get decisions -o json` prints.
type decidedCounts struct {
	all    tally
	by     map[string]map[string]*tally // by queue, policy, rule, code
	jobs   map[string]map[string]bool   // with a decision that had an effect, by queue
	states map[string]int               // jobs
}

func countDecisions(t *testing.T, data string) *decidedCounts {
	t.Helper()
	c := &decidedCounts{by: map[string]map[string]*tally{"queue": {}, "policy": {}, "rule": {}, "code": {}}, jobs: map[string]map[string]bool{}, states: map[string]int{}}
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		d := jsonLine(t, line)
		rule := d.text("rule")
		if rule != "" {
			rule = d.text("policy") + "/" + rule
		}
		to := []*tally{&c.all}
		for by, key := range map[string]string{"queue": d.text("queue"), "policy": d.text("policy"), "rule": rule, "code": d.text("code")} {
			if c.by[by][key] == nil {
				c.by[by][key] = &tally{}
			}
			to = append(to, c.by[by][key])
		}
		shadow, _ := d["shadow"].(bool)
		superseded, _ := d["superseded"].(bool)
		for _, n := range to {
			switch {
			case shadow:
				n.shadow++
			case superseded:
				n.superseded++
			case d.text("decision") == "JobRequeued":
				n.retried++
			default:
				n.failed++
			}
		}
		if queue := d.text("queue"); !shadow && !superseded {
			if c.jobs[queue] == nil {
				c.jobs[queue] = map[string]bool{}
			}
			c.jobs[queue][d.text("jobId")] = true
		}
	}
	for line := range strings.Lines(ctl(t, "get", "jobs", "--data", data, "-o", "json").exits(t, exitFine).out) {
		c.states[jsonLine(t, line).text("state")]++
	}
	return c
}

// showing serves the page of a data directory.
func showing(t *testing.T, data string) string {
	t.Helper()
	from := withOpenPolicies(t, data)
	service := &api.Service{Now: time.Now}
	if err := from.Policies(t.Context(), func(store *policylog.Store) error { service.Store = store; return nil }); err != nil {
		t.Fatal(err)
	}
	site, err := web.Open(web.Config{API: service, Query: *from, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return server.URL
}

var (
	htmlTable  = regexp.MustCompile(`(?s)<caption[^>]*>(.*?)</caption>.*?</table>`)
	htmlRow    = regexp.MustCompile(`(?s)<tr><td.*?</tr>`)
	htmlCell   = regexp.MustCompile(`(?s)<td[^>]*data-label="([^"]*)"[^>]*>(.*?)</td>`)
	htmlNote   = regexp.MustCompile(`(?s)<span class="note">(.*?)</span>`)
	htmlTag    = regexp.MustCompile(`(?s)<[^>]*>`)
	htmlFigure = regexp.MustCompile(`(?s)<b>([^<]*)</b> <span>([^<]*)</span>`)
	htmlState  = regexp.MustCompile(`(?s)<span class="badge [a-z]*">([A-Za-z]*)</span> <b class="num">([^<]*)</b>`)
)

// page is what a page shows: its figures by name, and its tables by caption, each row by the names of the columns.
type shownPage struct {
	text    string
	figures map[string]int
	states  map[string]int
	tables  map[string][]map[string]string
}

func plainText(s string) string {
	return strings.TrimSpace(html.UnescapeString(htmlTag.ReplaceAllString(s, "")))
}

// number reads a count; 0: there is none.
func number(t *testing.T, s string) int {
	t.Helper()
	s = strings.ReplaceAll(html.UnescapeString(s), "\u202f", "")
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openPage(t *testing.T, at string) *shownPage {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	body := string(raw)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s: %v", at, resp.StatusCode, body, err)
	}
	p := &shownPage{text: body, figures: map[string]int{}, states: map[string]int{}, tables: map[string][]map[string]string{}}
	for _, m := range htmlFigure.FindAllStringSubmatch(body, -1) {
		p.figures[m[2]] = number(t, m[1])
	}
	for _, m := range htmlState.FindAllStringSubmatch(body, -1) {
		p.states[m[1]] = number(t, m[2])
	}
	for _, one := range htmlTable.FindAllStringSubmatch(body, -1) {
		caption := plainText(one[1])
		for _, row := range htmlRow.FindAllString(one[0], -1) {
			cells := map[string]string{}
			for _, c := range htmlCell.FindAllStringSubmatch(row, -1) {
				if note := htmlNote.FindStringSubmatch(c[2]); note != nil {
					cells[c[1]+" note"] = plainText(note[1])
				}
				cells[c[1]] = plainText(htmlNote.ReplaceAllString(c[2], ""))
			}
			p.tables[caption] = append(p.tables[caption], cells)
		}
	}
	return p
}

// TestCountsAgree: page, commands and API say the same of one history, where some of it was decided in shadow and some
// too late. What they count is what `get decisions` lists.
func TestCountsAgree(t *testing.T) {
	t.Parallel()
	late := func(t *testing.T) string {
		data := letPass(t, "retried")
		ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
		return data
	}
	shadow := func(t *testing.T) string {
		data := filepath.Join(t.TempDir(), "data")
		ctl(t, "up", "--data", data, "--policies", shadowPolicies(t), "--feed", recordingFile("chaos"), "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
		return data
	}
	groups := func(t *testing.T) string {
		data := filepath.Join(t.TempDir(), "data")
		policies := writeFile(t, t.TempDir(), "policies.yaml", groupPolicies)
		ctl(t, "up", "--data", data, "--policies", policies, "--feed", groupHistoryFile(t), "--exit-when-drained").exits(t, exitFine)
		return data
	}
	for name, h := range map[string]struct {
		data func(*testing.T) string
		want tally // 1: some, 0: none
	}{
		"a queue in shadow": {drainedCopy, tally{1, 1, 1, 0}},
		"all in shadow":     {shadow, tally{0, 0, 1, 0}},
		"superseded":        {late, tally{1, 1, 1, 1}},
		"groups":            {groups, tally{1, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := h.data(t)
			c := countDecisions(t, data)
			for _, n := range [][2]int{{c.all.retried, h.want.retried}, {c.all.failed, h.want.failed}, {c.all.shadow, h.want.shadow}, {c.all.superseded, h.want.superseded}} {
				if n[0] > 0 != (n[1] > 0) {
					t.Fatalf("the history has %+v", c.all)
				}
			}
			server := answering(t, data, nil)
			site := showing(t, data)
			c.checkSummary(t, data, server, site)
			c.checkTops(t, data, server, site)
			c.checkQueues(t, data, server, site)
			c.checkPolicies(t, site)
			c.checkShadow(t, data, site)
			if c.all.superseded == 0 {
				c.checkWhatIf(t, data)
			}
		})
	}
}

func (c *decidedCounts) checkSummary(t *testing.T, data, server, site string) {
	t.Helper()
	var sum pb.Summary
	if status, body := ask(t, server+"/refloat/v1/summary", ""); status != http.StatusOK {
		t.Fatal(body)
	} else if err := protojson.Unmarshal([]byte(body), &sum); err != nil {
		t.Fatal(err)
	}
	if got := (tally{int(sum.Retried), int(sum.FailedForGood), int(sum.InShadow), int(sum.Superseded)}); got != c.all {
		t.Errorf("the summary of the API counts %+v, want %+v", got, c.all)
	}
	byRule := map[string]*tally{}
	for _, d := range sum.Decisions {
		rule := d.Rule
		if rule != "" {
			rule = d.Policy + "/" + rule
		}
		if byRule[rule] == nil {
			byRule[rule] = &tally{}
		}
		switch n := int(d.Count); {
		case d.Shadow:
			byRule[rule].shadow += n
		case d.Superseded:
			byRule[rule].superseded += n
		case d.Decision == "JobRequeued":
			byRule[rule].retried += n
		default:
			byRule[rule].failed += n
		}
	}
	sameTallies(t, "the summary of the API", c.by["rule"], byRule)

	up := ctl(t, "up", "--data", data, "--exit-when-drained").exits(t, exitFine)
	kinds := tally{}
	for line := range strings.Lines(up.out) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "JobRequeued" && words[0] != "JobFailed" {
			continue
		}
		n := number(t, words[len(words)-1])
		switch {
		case words[1] == "(shadow)":
			kinds.shadow += n
		case words[1] == "(superseded)":
			kinds.superseded += n
		case words[0] == "JobRequeued":
			kinds.retried += n
		default:
			kinds.failed += n
		}
	}
	if kinds != c.all {
		t.Errorf("the summary of up counts %+v, want %+v:\n%s", kinds, c.all, up.out)
	}

	start := openPage(t, site+"/")
	if got := (tally{start.figures["retried"], start.figures["failed for good"], start.figures["in shadow"], start.figures["superseded"]}); got != c.all {
		t.Errorf("the start page says %+v, want %+v", got, c.all)
	}
	rows := map[string]*tally{}
	for _, row := range start.tables["Decisions by rule"] {
		code := row["Code"]
		if rows[code] == nil {
			rows[code] = &tally{}
		}
		n := number(t, row["Count"])
		switch {
		case row["Decision note"] == "in shadow":
			rows[code].shadow += n
		case row["Decision note"] != "":
			rows[code].superseded += n
		case row["Decision"] == "retried":
			rows[code].retried += n
		default:
			rows[code].failed += n
		}
	}
	sameTallies(t, "decisions by rule, on the start page", c.by["code"], rows)
	if fmt.Sprint(start.states) != fmt.Sprint(c.states) {
		t.Errorf("jobs by state, on the start page: %v, want %v", start.states, c.states)
	}
}

func sameTallies(t *testing.T, where string, want, got map[string]*tally) {
	t.Helper()
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s: %q counts %+v", where, key, *got[key])
		}
	}
	for key, n := range want {
		if got[key] == nil || *got[key] != *n {
			t.Errorf("%s: %q counts %+v, want %+v", where, key, got[key], *n)
		}
	}
}

func (c *decidedCounts) checkTops(t *testing.T, data, server, site string) {
	t.Helper()
	for _, by := range []string{"queue", "policy", "rule"} {
		want := map[string]*tally{}
		for key, n := range c.by[by] {
			if n.effect() > 0 {
				want[key] = &tally{retried: n.retried, failed: n.failed}
			}
		}
		got := map[string]*tally{}
		for line := range strings.Lines(ctl(t, "top", "retries", "--jobs", "--by", by, "--limit", "0", "--data", data, "-o", "json").exits(t, exitFine).out) {
			o := jsonLine(t, line)
			got[o.text("key")] = &tally{retried: int(o.number("retries")), failed: int(o.number("failures"))}
			if by == "queue" && int(o.number("jobs")) != len(c.jobs[o.text("key")]) {
				t.Errorf("top counts %d jobs of queue %s, want %d", o.number("jobs"), o.text("key"), len(c.jobs[o.text("key")]))
			}
		}
		sameTallies(t, "top by "+by, want, got)
		status, body := ask(t, server+"/refloat/v1/top/retries?limit=100&by="+by, "")
		var answer pb.TopRetriesResponse
		if err := protojson.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		got = map[string]*tally{}
		for _, row := range answer.Rows {
			got[row.Key] = &tally{retried: int(row.Retries), failed: int(row.Failures)}
		}
		sameTallies(t, "top of the API by "+by, want, got)
		got = map[string]*tally{}
		for _, row := range openPage(t, site+"/top?by="+by).tables["Retries by "+by] {
			key := row[strings.ToUpper(by[:1])+by[1:]]
			if key == "none" {
				key = ""
			}
			got[key] = &tally{retried: number(t, row["Retries"]), failed: number(t, row["Failed for good"])}
		}
		sameTallies(t, "the page /top by "+by, want, got)
	}
}

var queueLine = regexp.MustCompile(`: (\d+) decisions?: (\d+) retried, (\d+) failed for good(?:, (\d+) in shadow)?(?:, (\d+) superseded)?\n`)

func (c *decidedCounts) checkQueues(t *testing.T, data, server, site string) {
	t.Helper()
	for queue, want := range c.by["queue"] {
		line, _, _ := strings.Cut(ctl(t, "explain", "queue", queue, "--data", data).exits(t, exitFine).out, "\n")
		m := queueLine.FindStringSubmatch(line + "\n")
		if m == nil {
			t.Fatalf("explain queue prints %q", line)
		}
		if got := (tally{number(t, m[2]), number(t, m[3]), number(t, m[4]), number(t, m[5])}); got != *want || number(t, m[1]) != want.all() {
			t.Errorf("queue %s: %q, want %+v", queue, line, *want)
		}
		for where, text := range map[string]string{
			"explain queue -o json": ctl(t, "explain", "queue", queue, "--data", data, "-o", "json").exits(t, exitFine).out,
			"the API":               second(ask(t, server+"/refloat/v1/queues/"+url.PathEscape(queue)+"/story", "")),
		} {
			var s struct {
				Decisions, Retries, Failures, WithoutEffect json.Number
				Codes                                       []struct {
					Key   string
					Count int
				}
			}
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintln(s.Decisions, s.Retries, s.Failures, s.WithoutEffect)
			if all := fmt.Sprintln(want.all(), want.retried, want.failed, want.shadow+want.superseded); got != all {
				t.Errorf("queue %s, %s: %s, want %s", queue, where, got, all)
			}
			codes := 0
			for _, n := range s.Codes {
				codes += n.Count
			}
			if codes != want.all() {
				t.Errorf("queue %s, %s: codes of %d decisions, want %d", queue, where, codes, want.all())
			}
		}
		page := openPage(t, site+"/queue?name="+url.QueryEscape(queue))
		if got := (tally{page.figures["retried"], page.figures["failed for good"], page.figures["in shadow"], page.figures["superseded"]}); got != *want {
			t.Errorf("the page of queue %s says %+v, want %+v", queue, got, *want)
		}
	}
}

func second(_ int, body string) string { return body }

// checkPolicies checks how often each rule decided, on the pages of the policies.
func (c *decidedCounts) checkPolicies(t *testing.T, site string) {
	t.Helper()
	for policy := range c.by["policy"] {
		if policy == "" {
			continue
		}
		got := map[string]*tally{}
		for _, row := range openPage(t, site+"/policy?name="+url.QueryEscape(policy)).tables["Rules, in order, with how often each decided"] {
			n := &tally{number(t, row["Retried"]), number(t, row["Failed for good"]), number(t, row["In shadow"]), number(t, row["Superseded"])}
			if key := policy + "/" + row["Rule"]; n.all() > 0 {
				got[key] = n
			}
		}
		want := map[string]*tally{}
		for rule, n := range c.by["rule"] {
			if strings.HasPrefix(rule, policy+"/") {
				want[rule] = n
			}
		}
		sameTallies(t, "the page of policy "+policy, want, got)
	}
}

func (c *decidedCounts) checkShadow(t *testing.T, data, site string) {
	t.Helper()
	byRule := map[string]int{}
	runs, total := 0, int64(0)
	for line := range strings.Lines(ctl(t, "shadow", "report", "--data", data, "-o", "json").exits(t, exitFine).out) {
		o := jsonLine(t, line)
		if q, ok := o["queue"].(map[string]any); ok {
			for _, r := range q["rules"].([]any) {
				r := object(r.(map[string]any))
				retry, fail := object(r["wouldRetry"].(map[string]any)), object(r["wouldFail"].(map[string]any))
				byRule[r.text("policy")+"/"+r.text("rule")] += int(retry.number("runs") + fail.number("runs"))
			}
		}
		if o["run"] != nil {
			runs++
		}
		if s, ok := o["summary"].(map[string]any); ok {
			total = object(s).number("failedRuns")
		}
	}
	pageRuns := 0
	for _, row := range openPage(t, site+"/shadow").tables["Failed runs by rule"] {
		pageRuns += number(t, row["Would retry"]) + number(t, row["Would fail"])
	}
	if runs != c.all.shadow || int(total) != c.all.shadow || pageRuns != c.all.shadow {
		t.Errorf("the shadow report has %d runs and says %d, the page %d, want %d", runs, total, pageRuns, c.all.shadow)
	}
	for rule, n := range c.by["rule"] {
		if rule != "" && byRule[rule] != n.shadow {
			t.Errorf("the shadow report counts %d of rule %s, want %d", byRule[rule], rule, n.shadow)
		}
	}
}

// checkWhatIf: a what-if that changes nothing counts what was decided.
func (c *decidedCounts) checkWhatIf(t *testing.T, data string) {
	t.Helper()
	r := jsonLine(t, ctl(t, "whatif", "--set", "settings.terminationSlack=9s", "--data", data, "-o", "json").out)
	for _, u := range r["rules"].([]any) {
		u := object(u.(map[string]any))
		n := c.by["rule"][u.text("policy")+"/"+u.text("rule")]
		if n == nil {
			continue // of a unit
		}
		if int(u.number("decided")) != n.all() || int(u.number("retried")) != n.retried {
			t.Errorf("what-if says that rule %s decided %d and retried %d, want %+v", u.text("rule"), u.number("decided"), u.number("retried"), *n)
		}
	}
}
