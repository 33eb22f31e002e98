package main

import (
	"fmt"
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store/memstore"
)

// checkStore returns an error if this binary has no store of that URL's
// scheme.
func checkStore(url string) error {
	switch scheme(url) {
	case "embedded", "memory":
		return nil
	case "postgres", "postgresql", "redis", "rediss":
		return fmt.Errorf("store %s: not built into this version", scheme(url))
	}
	return fmt.Errorf("store %q: want embedded: or memory: here", url)
}

// openStore opens a DB over the store that url names. It is the one place that
// names them all.
func openStore(url, dir string, o quipu.Options) (*quipu.DB, error) {
	if err := checkStore(url); err != nil {
		return nil, err
	}
	if scheme(url) == "embedded" {
		return quipu.Open(dir, o)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return quipu.New(memstore.New(memstore.Options{Limits: o.Limits}), o), nil
}

func scheme(url string) string {
	s, _, ok := strings.Cut(url, ":")
	if !ok {
		return ""
	}
	return s
}
