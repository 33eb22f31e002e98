package store

import (
	"strconv"
	"strings"
)

// The shards of a counter are cells of the store's own namespace, so that they
// are in no list and under no limit: shard/1/NAMESPACE/KEY and so on. The counter's
// own cell is its shard 0.
const shardPrefix = "shard/"

// ShardCell returns the address of shard i of a counter.
func ShardCell(c Cell, i int) Cell {
	if i == 0 {
		return c
	}
	return Cell{Key: shardPrefix + strconv.Itoa(i) + "/" + c.Namespace + "/" + c.Key}
}

// ShardOf returns which shard of which counter a cell is; ok is false if it is
// none but the first.
func ShardOf(c Cell) (of Cell, i int, ok bool) {
	rest, ok := strings.CutPrefix(c.Key, shardPrefix)
	if !ok || c.Namespace != "" {
		return Cell{}, 0, false
	}
	number, address, ok := strings.Cut(rest, "/")
	if !ok {
		return Cell{}, 0, false
	}
	of.Namespace, of.Key, ok = strings.Cut(address, "/")
	if i, err := strconv.Atoi(number); ok && err == nil && i > 0 && strconv.Itoa(i) == number {
		return of, i, true
	}
	return Cell{}, 0, false
}
