// Package clienttest proves that clients of Redis work unchanged. It is a module
// of its own, so that what it takes to test with them is nobody else's
// dependency.
package clienttest
