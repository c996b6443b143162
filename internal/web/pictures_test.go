package web_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/refloat/refloat/internal/app"
)

// TestPictures makes the pictures in the documents, if REFLOAT_PICTURES is set. Without that, it checks that each is one that it makes, that a
// document shows it, and that its page and style sheet are still those of which it was made.
func TestPictures(t *testing.T) {
	t.Parallel()
	const dir = "../../docs/images"
	pictures := map[string]struct {
		page, document string
		height         int64
	}{
		"page-start.png": {"/?live=off", "../../README.md", 800},
		"page-job.png":   {"/job?id=01m7xn681y99tqr9907k6hqh4d&live=off", "../../docs/why.md", 800},
	}
	for name, p := range pictures {
		if text, err := os.ReadFile(p.document); err != nil || !bytes.Contains(text, []byte("images/"+name)) {
			t.Errorf("%s does not show %s: %v", p.document, name, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, made := pictures[f.Name()]; !made {
			t.Errorf("nothing makes %s", f.Name())
		}
	}
	d, err := deploy("../../examples/policies", "../../testdata/recordings/plain.jsonl.gz", func(context.Context, app.Dir) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	const list = "testdata/pictures.sha256" // of each page, and of its picture
	made := func() (lines string) {
		_, style := ask(t, "GET", d.url+"/static/style.css", "")
		for _, name := range slices.Sorted(maps.Keys(pictures)) {
			_, body := ask(t, "GET", d.url+pictures[name].page, "")
			picture, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines += fmt.Sprintf("%x %x %s\n", sha256.Sum256([]byte(ago.ReplaceAllString(body, "")+style)), sha256.Sum256(picture), name)
		}
		return lines
	}
	if os.Getenv("REFLOAT_PICTURES") == "" {
		if want, err := os.ReadFile(list); err != nil || made() != string(want) {
			t.Errorf("the pictures are not of these pages: make them anew with REFLOAT_PICTURES=1 go test ./internal/web -run TestPictures (%v)\n%s", err, made())
		}
		return
	}
	ctx := tab(t)
	for name, p := range pictures {
		act(ctx, t, media("light"), chromedp.EmulateViewport(1280, p.height), chromedp.Navigate(d.url+p.page))
		until(ctx, t, `document.readyState == "complete" && document.querySelector("#main")`)
		if err := os.WriteFile(filepath.Join(dir, name), get(ctx, t, chromedp.CaptureScreenshot()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(list, []byte(made()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ago is how long ago a time was, which a page says beside it.
var ago = regexp.MustCompile(`<small class="beside".*?</small>`)
