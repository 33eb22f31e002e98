package resp

import (
	"context"
	"math"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/store"
)

// databases is how many databases a user has. Each is a namespace.
const databases = 16

// namespaceOf returns the namespace that is a database of a user. Database 0 is the
// one of the user's own name. Nothing that two users count meets, and so the others
// have the name in theirs too, except those of the default user.
func namespaceOf(user string, index int) string {
	switch {
	case index == 0:
		return user
	case user == userDefault:
		return "db" + itoa(int64(index))
	}
	return user + ".db" + itoa(int64(index))
}

func selectDB(s *session, args [][]byte) error {
	n, err := integer(args[1])
	switch {
	case err != nil:
		return err
	case n < math.MinInt32 || n > math.MaxInt32:
		return wireError("ERR value is out of range, value must between -2147483648 and 2147483647")
	case n < 0 || n >= databases:
		return wireError("ERR DB index is out of range")
	}
	if err := s.checkDatabase(namespaceOf(s.user, int(n))); err != nil {
		return err
	}
	if err := s.use(s.view.Principal, s.user, int(n)); err != nil {
		return err
	}
	s.ok()
	return nil
}

// use makes a database of a user the one that the session works in, for a principal. If it
// listens to prefixes that this one may not read there, it listens to nothing any more; nor does it to channels if it
// is somebody else's now.
func (s *session) use(who *access.Principal, user string, index int) error {
	namespace := namespaceOf(user, index)
	if err := store.CheckNamespace(namespace); err != nil {
		return wireError("ERR database " + itoa(int64(index)) + " would be a namespace with too long a name")
	}
	db := s.d.view(namespace)
	if who != s.view.Principal || user != s.user { // The channels are another's.
		s.d.hub.leave(s)
	}
	s.become(who, namespace)
	s.mu.Lock()
	s.db, s.who, s.user, s.index = db, who, user, index
	s.mu.Unlock()
	if s.follow.bcast && !s.hearsAll() {
		s.unfollow()
	}
	s.d.tracker.move(s, namespace)
	return nil
}

// namespace returns the one that the session works in, to any goroutine.
func (s *session) namespace() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Port().Namespace()
}

// databases returns the databases of the session's user.
func (s *session) databases() []*quipu.DB {
	views := make([]*quipu.DB, 0, databases)
	for i := range databases {
		if name := namespaceOf(s.user, i); store.CheckNamespace(name) == nil {
			views = append(views, s.d.view(name))
		}
	}
	return views
}

// copyCommand is COPY, also to another database.
func copyCommand(ctx context.Context, s *session, args [][]byte) error {
	index, replace := s.index, false
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			replace = true
		case is(args[i], "DB") && i+1 < len(args):
			i++
			n, err := integer(args[i])
			if err != nil {
				return err
			}
			if n < 0 || n >= databases {
				return wireError("ERR DB index is out of range")
			}
			index = int(n)
		default:
			return errSyntax
		}
	}
	if index == s.index {
		here := args[:3:3]
		if replace {
			here = append(here, []byte("REPLACE"))
		}
		return textCommand(ctx, s, here)
	}
	for _, key := range args[1:3] {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	namespace := namespaceOf(s.user, index)
	if err := store.CheckNamespace(namespace); err != nil {
		return wireError("ERR database " + itoa(int64(index)) + " would be a namespace with too long a name")
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	done, err := s.db.Port().Copy(ctx, string(args[1]), s.d.view(namespace).Port(), string(args[2]), replace)
	if err != nil {
		return err
	}
	s.flag(done)
	return nil
}
