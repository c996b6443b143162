package web_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/test/gangtest"
)

// gang is a running node on the history of a gang.
func gang(t *testing.T, members int) *deployment {
	t.Helper()
	dir := t.TempDir()
	feed, policies := filepath.Join(dir, "gang.jsonl.gz"), filepath.Join(dir, "policies.yaml")
	if err := errors.Join(gangtest.Write(feed, members), os.WriteFile(policies, []byte(gangtest.Policies), 0o600)); err != nil {
		t.Fatal(err)
	}
	d, err := deploy(policies, feed, func(context.Context, app.Dir) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

const gangPage = "/group?queue=ml&set=run-7&name=gang%2Ftrain"

// TestGroupPage: the page of a gang says who failed first, and when, where and why, what the gang did, and what became of the members.
// The drawing is XML, and no larger with 10,000 members.
func TestGroupPage(t *testing.T) {
	t.Parallel()
	for _, members := range []int{64, 10_000} {
		if members > 64 && testing.Short() {
			continue
		}
		d := gang(t, members)
		_, body := ask(t, "GET", d.url+gangPage, "")
		drawing := regexp.MustCompile(`(?s)<svg class="chart".*?</svg>`).FindString(body)
		rows := 0
		for in := xml.NewDecoder(strings.NewReader(drawing)); ; {
			token, err := in.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%d members: %v in %.300s", members, err, drawing)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
				rows++
			}
		}
		// 0 to 2, 3, 4 to 16, 17 and the others, in two generations.
		if rows != 10 || len(drawing) > 4000 || len(body) > 24_000 {
			t.Errorf("%d members: %d bars, %d bytes of %d are drawn", members, rows, len(drawing), len(body))
		}
		shown := regexp.MustCompile(`\s+`).ReplaceAllString(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "")), " ")
		for _, want := range []string{
			"Failed member 17 of main/0 (job " + gangtest.Member(17) + ", run 1) failed at 2026-09-21T14:14:25Z on node gpu-17: exit code 139",
			"no rule matched; the default action of policy infra fails the job; the unit failed (BackoffLimitExceeded), and no group policy with rules or maxRestarts applies: by default, the group fails with it",
			fmt.Sprintf("%d members told to stop", members-1), "0: the gang has no group policy; retries of members by their own retry policies restarted it 1 time",
			"on node gpu-3: Preempted", "rule preempted of policy infra retries the job, and with it the whole gang", fmt.Sprintf("%d members started again", members),
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("%d members: the page lacks %q:\n%s", members, want, shown)
			}
		}
		_, stopped := ask(t, "GET", d.url+"/job?id="+gangtest.Member(20), "")
		if want := "it was stopped because member 17 of main/0 (job " + gangtest.Member(17) + ", run 1) failed"; !strings.Contains(html.UnescapeString(stopped), want) {
			t.Errorf("%d members: the page of a member that was stopped lacks %q", members, want)
		}
		_, lost := ask(t, "GET", d.url+"/group?queue=ml&set=run-7&name=kept", "")
		for _, want := range []string{"<strong>member 1 of workers/0 (job kept-1)</strong> was cancelled at ", "a unit with a cancelled member is never restarted", `">The job</a></p>`} {
			if !strings.Contains(html.UnescapeString(lost), want) {
				t.Errorf("the page of a group that lost a member lacks %q:\n%s", want, lost)
			}
		}
		// What would have changed it is one link away, and says the same as the command line.
		to := regexp.MustCompile(`href="([^"]*why-not=Retry[^"]*)"`).FindStringSubmatch(body)
		if to == nil {
			t.Fatal("no link to what would have changed it")
		}
		at, err := url.Parse(html.UnescapeString(to[1]))
		if err != nil {
			t.Fatal(err)
		}
		at.Fragment = ""
		_, body = ask(t, "GET", d.url+at.String(), "")
		for _, want := range []string{"policies.infra.defaultAction=Retry", "GangRetry infra/added", "What group gang/train would have done was evaluated too", "in the form of `refloatctl whatif --set`"} {
			if !strings.Contains(html.UnescapeString(body), want) {
				t.Errorf("%d members: %s lacks %q", members, at, want)
			}
		}
	}
}

// TestGroupInBrowser: the page of a gang is accessible, light and dark, and fits a narrow screen.
func TestGroupInBrowser(t *testing.T) {
	t.Parallel()
	d := gang(t, 64)
	ctx := tab(t)
	axe, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("REFLOAT_SCREENSHOTS")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{390, 1280} {
			act(ctx, t, media(scheme), chromedp.EmulateViewport(width, 900), chromedp.Navigate(d.url+gangPage))
			if !get(ctx, t, chromedp.Evaluate[bool](noRunaway)) {
				t.Errorf("at %d px it scrolls sideways: %s", width, get(ctx, t, chromedp.Evaluate[string](tooWide)))
			}
			if shots != "" {
				if err := os.WriteFile(filepath.Join(shots, "gang-"+scheme+fmt.Sprintf("-%d.png", width)), get(ctx, t, chromedp.CaptureScreenshot()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			get(ctx, t, chromedp.Evaluate[int](openAll+";"+string(axe)+";0"))
			findings(ctx, t, allRules, "the page of a gang, "+scheme)
		}
	}
}
