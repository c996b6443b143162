package web_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/refloat/refloat/internal/app"
)

// TestPictures makes the pictures in the documents, if REFLOAT_PICTURES is set. Without that, it checks that each is one that it makes, and
// that a document shows it.
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
	if os.Getenv("REFLOAT_PICTURES") == "" {
		return
	}
	ctx := tab(t)
	d, err := deploy("../../examples/policies", "../../testdata/recordings/plain.jsonl.gz", func(context.Context, app.Dir) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	for name, p := range pictures {
		act(ctx, t, media("light"), chromedp.EmulateViewport(1280, p.height), chromedp.Navigate(d.url+p.page))
		until(ctx, t, `document.readyState == "complete" && document.querySelector("#main")`)
		if err := os.WriteFile(filepath.Join(dir, name), get(ctx, t, chromedp.CaptureScreenshot()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
