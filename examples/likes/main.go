// Command likes is a like button as a service: each user likes a post once,
// however often the button is pressed and however often a request is repeated.
//
//	go run ./examples/likes
//	curl -X PUT    http://127.0.0.1:8090/posts/42/likes/ana
//	curl -X DELETE http://127.0.0.1:8090/posts/42/likes/ana
//	curl           http://127.0.0.1:8090/posts/42/likes?user=ana
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

func main() {
	addr := flag.String("http", "127.0.0.1:8090", "address to serve at")
	dir := flag.String("data", "", "directory of the counts; one that is removed at the end, if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *dir); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, dir string) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "likes-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	db, err := quipu.Open(dir, quipu.Options{})
	if err != nil {
		return err
	}
	defer db.Close()

	// Each user has at most one of the choices of a post. The store decides it, in one
	// step with the count.
	posts := definition.Definition{Pattern: "post:*", Choices: []string{"like"}}
	if _, err := db.Define(ctx, []definition.Definition{posts}, quipu.DefineOptions{}); err != nil {
		return err
	}

	likes := &service{db}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /posts/{post}/likes/{user}", likes.put)
	mux.HandleFunc("DELETE /posts/{post}/likes/{user}", likes.remove)
	mux.HandleFunc("GET /posts/{post}/likes", likes.get)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "listening on http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Shutdown(context.Background()) })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type service struct{ db *quipu.DB }

// A state is what a page shows of a post.
type state struct {
	Likes int64 `json:"likes"`
	Liked bool  `json:"liked"` // by the user who asks
}

func (s *service) put(w http.ResponseWriter, r *http.Request) {
	reaction, err := s.db.React(r.Context(), "post:"+r.PathValue("post"), r.PathValue("user"), "like", quipu.WantValue())
	answer(w, state{likesOf(reaction.Counts), true}, err)
}

func (s *service) remove(w http.ResponseWriter, r *http.Request) {
	reaction, err := s.db.Unreact(r.Context(), "post:"+r.PathValue("post"), r.PathValue("user"), quipu.WantValue())
	answer(w, state{likesOf(reaction.Counts), false}, err)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	key := "post:" + r.PathValue("post")
	reactions, err := s.db.Reactions(r.Context(), key)
	if err != nil {
		answer(w, state{}, err)
		return
	}
	liked := false
	if user := r.URL.Query().Get("user"); user != "" {
		var choices []string
		choices, err = s.db.Choice(r.Context(), user, key)
		liked = err == nil && choices[0] == "like"
	}
	answer(w, state{likesOf(reactions.Counts), liked}, err)
}

// likesOf returns how many users have the one choice that there is.
func likesOf(counts []quipu.ChoiceCount) int64 {
	for _, c := range counts {
		return c.Users
	}
	return 0
}

func answer(w http.ResponseWriter, s state, err error) {
	switch {
	case errors.Is(err, quipu.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(s)
	}
}
