package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
)

// asset is a file that pages load.
type asset struct {
	body        []byte
	contentType string
	tag         string
}

func newAssets() (map[string]asset, error) {
	all := map[string]asset{}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	files, err := fs.ReadDir(staticFiles, "static")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	for _, f := range files {
		body, err := staticFiles.ReadFile("static/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
		kind := types[path.Ext(f.Name())]
		if kind == "" {
			kind = "text/plain; charset=utf-8"
		}
		sum := sha256.Sum256(body)
		all["/static/"+f.Name()] = asset{body, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return all, nil
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache") // asks each time, and gets 304
	h.Set("ETag", a.tag)
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", a.contentType)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body)
	}
}
