// Command make has a quipu of the first format write two data directories: one that is
// closed, and one whose server is killed. README.md says how to run it.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/quipudb/quipu/quipupb"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: make QUIPU DIR")
	}
	for name, end := range map[string]syscall.Signal{"closed": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		if err := write(os.Args[1], filepath.Join(os.Args[2], name), end); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
}

// write serves a new directory twice, so that it has both a checkpoint and, if the
// second server is killed, a log to replay. The replies go into a file beside the data.
func write(quipu, dir string, end syscall.Signal) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	replies, err := os.Create(filepath.Join(dir, "replies.json"))
	if err != nil {
		return err
	}
	first := func(s *server) error {
		return errors.Join(
			s.run("add likes 3 --id one"), s.run("set big 1000 --id two"), s.run("add gone 5"), s.run("add zeroed 9"),
			s.run("add brief --ttl 1s"), s.run("add later 7 --ttl 30000d"), s.run("settle never --key likes"),
			s.run("add likes 30 --namespace shop --id one"), s.run("add likes 300 --namespace stöße --id one"),
			s.run("bench --target http://%s --op add --key hot --requests 2000 --warmup 0s", s.http),
			s.writer(1, 0, 3, 10),
		)
	}
	second := func(s *server) error {
		return errors.Join(
			s.run("add likes 4 --id three"), s.run("set big 2000 --id four"), s.run("delete gone --id five"), s.run("reset zeroed --id six"),
			s.run("add likes -40 --namespace shop --id two"), s.run("settle nowhere --key big"),
			s.run("bench --target http://%s --op add --key hot --requests 500 --warmup 0s", s.http),
			s.writer(1, 3, 4, 100), s.writer(2, 0, 1, 1000),
		)
	}
	if err := serve(quipu, dir, replies, syscall.SIGTERM, first); err != nil {
		return err
	}
	return errors.Join(serve(quipu, dir, replies, end, second), replies.Close())
}

type server struct {
	quipu, http string
	rpc         pb.QuipuClient
	replies     io.Writer
}

func serve(quipu, dir string, replies io.Writer, end syscall.Signal, do func(*server) error) error {
	config := filepath.Join(dir, "config.yaml")
	text := "policies:\n  - {pattern: hot, shards: 4}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	c := exec.Command(quipu, "serve", "--config", config, "--data", filepath.Join(dir, "data"),
		"--http", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--resp", "off")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	m := regexp.MustCompile(`http=(\S+) rpc=(\S+)`).FindStringSubmatch(line)
	if err != nil || m == nil {
		return fmt.Errorf("the server says %q: %w", line, err)
	}
	conn, err := grpc.NewClient(m[2], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = do(&server{quipu, m[1], pb.NewQuipuClient(conn), replies})
	err = errors.Join(err, conn.Close(), c.Process.Signal(end))
	if left := c.Wait(); end != syscall.SIGKILL {
		err = errors.Join(err, left)
	}
	return err
}

// run runs a command, and keeps what the server has replied to one with a token.
func (s *server) run(line string, args ...any) error {
	fields := strings.Fields(fmt.Sprintf(line, args...))
	if fields[0] != "bench" {
		fields = append(fields, "--json", "--addr", s.http)
	}
	c := exec.Command(s.quipu, fields...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err == nil && strings.Contains(line, "--id") {
		_, err = s.replies.Write(out)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// writer sends one numbered batch of a writer. The first of a writer enlists it.
func (s *server) writer(writer, prev, seq uint64, n int64) error {
	ctx := context.Background()
	if prev == 0 {
		r, err := s.rpc.Enlist(ctx, &pb.EnlistRequest{})
		if err != nil || r.Writer != writer {
			return fmt.Errorf("enlisted %v: %w", r, err)
		}
	}
	stream, err := s.rpc.Write(ctx)
	if err != nil {
		return err
	}
	r := &pb.WriteRequest{Writer: writer, Prev: prev, Seq: seq, Namespace: "default", Keys: []string{"left", "right"}, Deltas: []int64{n, 2 * n}}
	if err := stream.Send(r); err != nil {
		return err
	}
	reply, err := stream.Recv()
	if err != nil || reply.Error != nil || reply.Mark != seq {
		return fmt.Errorf("wrote %v: %w", reply, err)
	}
	return stream.CloseSend()
}
