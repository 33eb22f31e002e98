// Package browsertest proves that the dashboard works in a browser, and takes the
// pictures of it that the documentation shows. It is a module of its own, so that what
// it takes to drive a browser is nobody else's dependency.
package browsertest
