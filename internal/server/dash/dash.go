// Package dash has the files of the dashboard: one page, its style sheet and its
// modules of JavaScript, as they are in the folder assets. Nothing builds them, and
// they load nothing from elsewhere.
//
// The page shows what the REST API tells, and has no call of its own. It runs under a
// policy that lets it load scripts and styles from this server alone, lets no string
// become a script, and lets no other page frame it.
package dash

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
)

//go:embed assets
var assets embed.FS

// Folder is the path that all files but the page itself are below.
const Folder = "/dash/"

// policy is what the page may do. It makes all of its elements itself, and never
// from text that came from elsewhere, which require-trusted-types-for enforces.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A File is one file as it is served.
type File struct {
	Path string // "/" is the page
	ETag string
	Type string
	Body []byte
}

// Files returns all files.
func Files() ([]File, error) {
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		return nil, fmt.Errorf("read the files of the dashboard: %w", err)
	}
	all := make([]File, 0, len(entries))
	for _, e := range entries {
		body, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the files of the dashboard: %w", err)
		}
		f := File{Path: Folder + e.Name(), Body: body}
		if e.Name() == "index.html" {
			f.Path = "/"
		}
		var known bool
		if f.Type, known = types()[path.Ext(e.Name())]; !known {
			return nil, fmt.Errorf("%s of the dashboard is of no type that it has", e.Name())
		}
		sum := sha256.Sum256(body)
		f.ETag = `"` + hex.EncodeToString(sum[:8]) + `"`
		all = append(all, f)
	}
	return all, nil
}

// types are those of the files by their endings. Package mime would ask the machine.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".svg":  "image/svg+xml",
	}
}

// SetHeader fills the header of a reply with the file.
func (f *File) SetHeader(h http.Header) {
	h.Set("Content-Type", f.Type)
	h.Set("Etag", f.ETag)
	h.Set("Cache-Control", "no-cache") // It is asked for again each time, and is of the version that serves.
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
