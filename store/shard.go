package store

import (
	"strconv"
	"strings"
)

// The shards of a counter are cells of the store's own namespace, so that they
// are in no list and under no limit: shard/1/NAMESPACE/KEY and so on. The counter's
// own cell is its shard 0. What servers tell each other of its total is there too:
// claim/NAMESPACE/KEY and total/NAMESPACE/KEY; and so are limits, limit/LANE/NAMESPACE/NAME,
// and lanes: lane/NUMBER/NAMESPACE.
const (
	shardPrefix = "shard/"
	claimPrefix = "claim/"
	totalPrefix = "total/"
	lanePrefix  = "lane/"
)

// LimitsPrefix begins the keys of limits in the store's own namespace.
const LimitsPrefix = "limit/"

// LaneSlots is the number of lanes of a namespace in a partition.
const LaneSlots = 8

// lanePartitions is how many partitions may have lanes: a row has two bytes for their number.
const lanePartitions = 1 << 16 / LaneSlots

// LaneCell returns the address of a lane of a namespace in a partition. A lane
// has the parts that many counters share, of a kind that is Shared. Riders of
// such a kind change a lane in the partition of their event, so they change in
// one step with their lead. Servers that write to the same partition use
// different slots, so that none waits for another, and readers combine all
// lanes. A lane is not a counter.
func LaneCell(namespace string, partition, slot int) Cell {
	return Cell{Key: lanePrefix + strconv.Itoa(slot*lanePartitions+partition) + "/" + namespace}
}

// LaneOf returns the lane of a cell; ok is false if the cell is not a lane.
func LaneOf(c Cell) (namespace string, partition, slot int, ok bool) {
	namespace, number, ok := laneOf(c)
	return namespace, number % lanePartitions, number / lanePartitions, ok
}

// laneOf returns the number of a lane, which has its slot and its partition.
func laneOf(c Cell) (namespace string, number int, ok bool) {
	rest, ok := strings.CutPrefix(c.Key, lanePrefix)
	if !ok || c.Namespace != "" {
		return "", 0, false
	}
	text, namespace, ok := strings.Cut(rest, "/")
	number, err := strconv.Atoi(text)
	if !ok || err != nil || number < 0 || number >= LaneSlots*lanePartitions || strconv.Itoa(number) != text {
		return "", 0, false
	}
	return namespace, number, true
}

// LimitCell returns the address of a lane of a limit. The usage of a client is
// a part of one of them. A limit is not a counter, though it may have the name
// of one. The definitions of its namespace apply to it.
func LimitCell(namespace, name string, lane int) Cell {
	return Cell{Key: LimitsPrefix + strconv.Itoa(lane) + "/" + namespace + "/" + name}
}

// LimitOf returns the limit and the lane of a cell; ok is false if the cell
// belongs to no limit.
func LimitOf(c Cell) (namespace, name string, lane int, ok bool) {
	rest, ok := strings.CutPrefix(c.Key, LimitsPrefix)
	if !ok || c.Namespace != "" {
		return "", "", 0, false
	}
	number, address, ok := strings.Cut(rest, "/")
	if !ok {
		return "", "", 0, false
	}
	namespace, name, ok = strings.Cut(address, "/")
	lane, err := strconv.Atoi(number)
	if !ok || err != nil || lane < 0 || strconv.Itoa(lane) != number {
		return "", "", 0, false
	}
	return namespace, name, lane, true
}

// RollupCells returns the addresses of a counter's claim and total, which are in
// its own partition.
func RollupCells(c Cell) (claim, total Cell) {
	address := c.Namespace + "/" + c.Key
	return Cell{Key: claimPrefix + address}, Cell{Key: totalPrefix + address}
}

// beside returns the counter in whose partition a cell of the store's own
// namespace is, and how many partitions after it.
func beside(c Cell) (of Cell, after int, ok bool) {
	for _, prefix := range [...]string{claimPrefix, totalPrefix} {
		if address, found := strings.CutPrefix(c.Key, prefix); found {
			of.Namespace, of.Key, ok = strings.Cut(address, "/")
			return of, 0, ok
		}
	}
	return ShardOf(c)
}

// SplitMax is the highest number of a shard of a split counter. Higher numbers
// are its seats: each has some of its users.
const SplitMax = 64

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

// SpaceOf returns the namespace whose definitions and floors apply to a cell:
// that of its counter, or of the limit or the lane that the cell is.
func SpaceOf(c Cell) string {
	if c.Namespace == "" {
		if of, _, ok := ShardOf(c); ok {
			return of.Namespace
		}
		if namespace, _, _, ok := LimitOf(c); ok {
			return namespace
		}
		if namespace, _, ok := laneOf(c); ok {
			return namespace
		}
	}
	return c.Namespace
}
