package rest

import (
	"net/http"

	"github.com/quipudb/quipu/internal/server/dash"
)

// pages are the routes of the dashboard. They need no key: the page says nothing, and
// asks for a key before it calls what does.
func pages() []route {
	files, err := dash.Files()
	if err != nil {
		panic(err) // they are in the program
	}
	rs := make([]route, len(files))
	for i, f := range files {
		rs[i] = route{method: "GET", path: f.Path, page: true, anyOrigin: true, anyQuery: true, serve: page(&f)}
	}
	return rs
}

// page serves a file.
func page(f *dash.File) func(*call) error {
	return func(c *call) error {
		f.SetHeader(c.w.Header())
		if vs := c.r.Header["If-None-Match"]; vs != nil && listed(vs, f.ETag, true) {
			c.send(http.StatusNotModified)
			return nil
		}
		c.out = append(c.out, f.Body...)
		c.send(http.StatusOK)
		return nil
	}
}
