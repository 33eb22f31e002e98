package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
)

const (
	likeAbout = "A post is liked once by each of a million users, over RESP on 50 connections, acknowledged when durable: `Q.REACT post user like`, embedded, against a script in Redis with " +
		"`appendfsync always` that makes `SADD`, and `INCRBY` if the user is new. When all users have liked a post, the next one begins. Afterwards the last post has as many likes as were told. " +
		"CPU time is the server's."
	membersAbout = "What a user who has reacted takes in a store, with ids of 16 bytes: the data directory of an embedded server after it was closed, the database in PostgreSQL after a vacuum, and the " +
		"memory of Redis. All users react to one post."
)

const (
	likesConfig = "definitions:\n- {pattern: \"post:*\", choices: [like, dislike]}\n"
	likeScript  = "if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then redis.call('INCRBY', KEYS[2], 1) return 1 end return 0"

	likesUsers = 1_000_000
)

// Likers make each user like a post once, and go on with the next post.
type likers struct {
	users   int64
	done    atomic.Int64
	command func(dst []byte, post, user int64) []byte
}

// next appends the next like.
func (l *likers) next(dst []byte, _ int) []byte {
	n := l.done.Add(1) - 1
	return l.command(dst, n/l.users, n%l.users)
}

// appendUser appends a name of 16 bytes.
func appendUser(dst []byte, user int64) []byte {
	return appendDigits(append(dst, "user-"...), user, 11)
}

// likes has a server take reactions, and Redis the script.
func likes(s *session) (err error) {
	d := pick(s, 4*time.Second, 300*time.Millisecond)
	config := filepath.Join(s.dir, "likes.yaml")
	if err := os.WriteFile(config, []byte(likesConfig), 0o600); err != nil {
		return err
	}
	server, err := s.serveQuipu(filepath.Join(s.dir, "data"), "--config", config, "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	sha, err := loadScript(s.ctx, redis.Addr, likeScript)
	if err != nil {
		return err
	}
	users := int64(pick(s, likesUsers, 1000))
	quipu := &likers{users: users, command: func(dst []byte, post, user int64) []byte {
		dst = appendDigits(append(dst, "*4\r\n$7\r\nQ.REACT\r\n$11\r\npost:"...), post, 6)
		return append(appendUser(append(dst, "\r\n$16\r\n"...), user), "\r\n$4\r\nlike\r\n"...)
	}}
	call := "*6\r\n$7\r\nEVALSHA\r\n$40\r\n" + sha + "\r\n$1\r\n2\r\n$12\r\nusers:"
	script := &likers{users: users, command: func(dst []byte, post, user int64) []byte {
		dst = appendDigits(append(dst, call...), post, 6)
		dst = appendDigits(append(dst, "\r\n$12\r\nlikes:"...), post, 6)
		return append(appendUser(append(dst, "\r\n$16\r\n"...), user), "\r\n"...)
	}}
	var turns []func() error
	for _, depth := range []int{16, 64} {
		turn := func(side, addr string, l *likers, pid int) func() error {
			return func() error {
				_, err := s.pipelined(fmt.Sprintf("%s, depth %d", side, depth), pipelines{
					servers: []string{addr}, callers: peersConnections, depth: depth, want: ':', time: d, next: l.next,
					cpu: func() (time.Duration, error) { return cpuTime(pid) },
				})
				return err
			}
		}
		turns = append(turns, turn("quipu", server.doors["resp"], quipu, server.pid()), turn("redis", redis.Addr, script, redis.PID()))
	}
	if err := s.alternate(turns...); err != nil {
		return err
	}
	s.note("%s, appendfsync always.", redis.Version)
	for _, of := range []struct {
		depth int
		least float64
	}{{16, 3}, {64, 4}} {
		at := fmt.Sprintf(", depth %d", of.depth)
		s.atLeast("rate over that of Redis"+at, s.over("quipu"+at, "redis"+at, rate), of.least)
		s.atMost("CPU time over that of Redis"+at, s.over("quipu"+at, "redis"+at, cpuNS), 0.5)
	}
	return sameLikes(s.ctx, server.doors["resp"], quipu)
}

// sameLikes returns an error if the posts have not as many likes as were told.
func sameLikes(ctx context.Context, addr string, l *likers) error {
	post, want := l.done.Load()/l.users, l.done.Load()%l.users
	if want == 0 {
		post, want = post-1, l.users
	}
	reply, err := ask(ctx, addr, fmt.Sprintf("SCARD post:%06d", post))
	if err == nil && reply != fmt.Sprintf(":%d", want) {
		err = fmt.Errorf("post %d has %s likes, and %d were told", post, reply, want)
	}
	return err
}

// loadScript loads a script into Redis, and returns its name.
func loadScript(ctx context.Context, addr, script string) (sha string, err error) {
	p, err := dialPipeline(ctx, addr)
	if err != nil {
		return "", err
	}
	if _, err = fmt.Fprintf(p, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%s\r\n", len(script), script); err == nil {
		if _, err = p.in.ReadString('\n'); err == nil {
			sha, err = p.in.ReadString('\n')
		}
	}
	return strings.TrimSpace(sha), errors.Join(err, p.Close())
}

// bytesPerMember is what the figure members measures.
const bytesPerMember = "bytes/member"

// memberSizes weighs members on disk, and in the stores of others.
func memberSizes(s *session) error {
	config := filepath.Join(s.dir, "likes.yaml")
	if err := os.WriteFile(config, []byte(likesConfig), 0o600); err != nil {
		return err
	}
	many, some := pick(s, 10_000_000, 20_000), pick(s, 500_000, 2_000)
	embedded, postgres, redis := "embedded, "+number(float64(many)), "PostgreSQL, "+number(float64(some)), "Redis, "+number(float64(some))
	if err := s.alternate(
		func() error { return s.embeddedMembers(embedded, config, many) },
		func() error { return s.postgresMembers(postgres, config, some) },
		func() error { return s.redisMembers(redis, config, some) },
	); err != nil {
		return err
	}
	s.atMost("bytes/member, embedded", s.median(embedded, bytesPerMember), 40)
	return nil
}

// fillMembers has users react.
func (s *session) fillMembers(n int, data, config string, flags ...string) (err error) {
	server, err := s.serveQuipu(data, append([]string{"--config", config, "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	p, err := dialPipeline(s.ctx, server.doors["resp"])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for at := 0; at < n; {
		depth := min(1000, n-at)
		if err := p.send(depth, ':', func(dst []byte) []byte {
			at++
			return append(appendUser(append(dst, "Q.REACT post:1 "...), int64(at)*2_654_435_761%99_999_999_977), " like\r\n"...)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) embeddedMembers(side, config string, n int) error {
	data := filepath.Join(s.dir, "members")
	defer func() { _ = os.RemoveAll(data) }()
	if err := s.fillMembers(n, data, config); err != nil {
		return err
	}
	size := int64(0)
	err := filepath.WalkDir(data, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	s.record(side, bytesPerMember, float64(size)/float64(n))
	return err
}

func (s *session) postgresMembers(side, config string, n int) (err error) {
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop(), os.RemoveAll(pg.Dir())) }()
	if err := s.fillMembers(n, "", config, "--store", pg.URL()); err != nil {
		return err
	}
	if _, err := pg.Run(s.ctx, "psql", "-c", "VACUUM FULL quipu.part_none", pg.URL()); err != nil {
		return err
	}
	out, err := pg.Run(s.ctx, "psql", "-tAc", "SELECT pg_total_relation_size('quipu.part_none')", pg.URL())
	if err != nil {
		return err
	}
	size, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	s.record(side, bytesPerMember, size/float64(n))
	return err
}

func (s *session) redisMembers(side, config string, n int) (err error) {
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "no", "--save", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	used := func() (float64, error) {
		p, err := dialPipeline(s.ctx, redis.Addr)
		if err != nil {
			return 0, err
		}
		defer func() { _ = p.Close() }()
		if _, err := fmt.Fprint(p, "INFO memory\r\n"); err != nil {
			return 0, err
		}
		for {
			line, err := p.in.ReadString('\n')
			if err != nil {
				return 0, err
			}
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
				return strconv.ParseFloat(text, 64)
			}
		}
	}
	before, err := used()
	if err != nil {
		return err
	}
	if err := s.fillMembers(n, "", config, "--store", "redis://"+redis.Addr); err != nil {
		return err
	}
	after, err := used()
	s.record(side, bytesPerMember, (after-before)/float64(n))
	return err
}
