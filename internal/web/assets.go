package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// schemaPath is where editors get the JSON Schema of policy files. Like a style sheet it is
// for everyone, and it says nothing about the policies in force.
const schemaPath = "/schema.json"

// asset is a file that pages load, or editors.
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
		kind := cmp.Or(types[path.Ext(f.Name())], "text/plain; charset=utf-8")
		all["/static/"+f.Name()] = assetOf(body, kind)
	}
	schema, err := policyfile.JSONSchema("")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	all[schemaPath] = assetOf(schema, "application/schema+json")
	return all, nil
}

func assetOf(body []byte, contentType string) asset {
	sum := sha256.Sum256(body)
	return asset{body, contentType, `"` + hex.EncodeToString(sum[:8]) + `"`}
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
