package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rpc"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store/memstore"
)

// A guardedKit is a door for the key "root" and those of its store.
type guardedKit struct {
	*kit
	ring *keyring.Ring
	gate *server.Gate
}

func openGuarded(t *testing.T) *guardedKit {
	t.Helper()
	s := memstore.New(memstore.Options{})
	keys, err := server.NewKeys([]string{"root"})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	ring := keyring.New(s, keyring.Options{Logger: quiet})
	gate := server.NewGate(server.GateOptions{Keys: keys, Ring: ring, Logger: quiet})
	ring.OnChange(gate.Changed)
	return &guardedKit{open(t, s, rpc.Options{Gate: gate}), ring, gate}
}

func (k *guardedKit) key(w keyring.Wish) (id, key string) {
	k.Helper()
	if w.Name == "" {
		w.Name = strings.Join(w.Grants, " ")
	}
	made, key, err := k.ring.Create(k.ctx, w, func(*access.Roll, *access.Record) error { return nil })
	if err != nil {
		k.Fatal(err)
	}
	return made.ID, key
}

func (k *guardedKit) as(key string) context.Context {
	return metadata.AppendToOutgoingContext(k.ctx, "authorization", "Bearer "+key)
}

// methods returns every method that the door serves, with its service.
func (k *guardedKit) methods() (all []string) {
	for service, info := range k.door.Services() {
		for _, m := range info.Methods {
			all = append(all, service+"/"+m.Name)
		}
	}
	return all
}

// Every method has a row in the table of package access, and every row has a method.
func TestEveryMethodHasARow(t *testing.T) {
	k := openGuarded(t)
	needs, seen := access.RPC(), map[string]bool{}
	for _, m := range k.methods() {
		seen[m] = true
		if _, ok := needs.Of(m); !ok {
			t.Errorf("%s has no row in internal/access/operations.go", m)
		}
	}
	for m := range needs {
		if !seen[m] {
			t.Errorf("row %s has no method", m)
		}
	}
}

// fill sets the fields of a message that say what it is about.
func fill(m *dynamicpb.Message, namespace, key, id string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch text := protoreflect.ValueOfString; {
		case f.Name() == "namespace":
			m.Set(f, text(namespace))
		case f.Name() == "domain":
			m.Set(f, text(namespace+"/"+key))
		case f.Name() == "id" && f.Kind() == protoreflect.StringKind:
			m.Set(f, text(id))
		case (f.Name() == "key" || f.Name() == "name" || f.Name() == "prefix") && f.Kind() == protoreflect.StringKind:
			m.Set(f, text(key))
		case f.Name() == "keys" && f.IsList():
			m.Mutable(f).List().Append(text(key))
		case (f.Name() == "events" || f.Name() == "descriptors") && f.IsList():
			e := m.Mutable(f).List().AppendMutable()
			if inner, ok := e.Message().Interface().(*dynamicpb.Message); ok {
				fill(inner, namespace, key, id)
			}
		}
	}
}

// call sends a message to any method, and returns what became of it.
func (k *guardedKit) call(ctx context.Context, method string, m proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := k.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_ = s.CloseSend()
	var reply pb.EnlistRequest // takes any message: what it does not know is kept
	if err := s.RecvMsg(&reply); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Every method, called by every principal, on keys that it is granted and on others, is
// allowed or refused as the table says.
func TestMethodsByPrincipal(t *testing.T) {
	k := openGuarded(t)
	type try struct {
		rule access.Rule
		key  string
	}
	var tries []try
	for _, g := range []string{"read", "write", "decide", "admin", "all"} {
		for _, where := range []string{"*", "n", "n/in:*", "*/in:*", "n/in:deep*"} {
			rule, err := access.ParseRule(g + ":" + where)
			if err != nil {
				t.Fatal(err)
			}
			_, key := k.key(keyring.Wish{Grants: []string{g + ":" + where}})
			tries = append(tries, try{rule, key})
		}
	}
	ids := map[string]string{}
	for _, key := range []string{"in:1", "in:deep", "out"} {
		if _, err := k.db.In("n").Set(t.Context(), key, 1000); err != nil {
			t.Fatal(err)
		}
		r, err := k.db.In("n").Reserve(t.Context(), key, 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		ids[key] = r.ID
	}
	needs, cells := access.RPC(), 0
	for _, method := range k.methods() {
		need, _ := needs.Of(method)
		service, name, _ := strings.Cut(method, "/")
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		input := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name)).Input()
		if need.Open() {
			continue // health, which also waits
		}
		for _, key := range []string{"in:1", "in:deep", "out"} {
			m := dynamicpb.NewMessage(input)
			fill(m, "n", key, ids[key])
			of := key
			if strings.HasPrefix(service, "envoy.") {
				of = key + ":" + key // the limit that the descriptor asks
			}
			for _, p := range tries {
				err := k.call(k.as(p.key), method, m)
				code := status.Code(err)
				allowed := code != codes.PermissionDenied && code != codes.Unauthenticated
				if want := grants(need, p.rule, "n", of); allowed != want {
					t.Errorf("%s of %s by %s: %v; want allowed: %v", method, key, p.rule, err, want)
				}
				cells++
			}
			if err := k.call(k.ctx, method, m); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s by a stranger: %v", method, err)
			}
		}
	}
	t.Logf("%d cells", cells)
}

// grants is what a rule should mean, spelled out: the test's own judge.
func grants(need access.Need, r access.Rule, namespace, key string) bool {
	var on bool
	here := r.Every || r.Namespace == namespace
	switch need.Scope {
	case access.OnNothing, access.OnLogin:
		return true
	case access.OnSome:
		on = true
	case access.OnKeys, access.OnPrefix:
		on = here && len(key) >= len(r.Prefix) && key[:len(r.Prefix)] == r.Prefix
	case access.OnNamespace:
		on = here && r.Prefix == ""
	case access.OnServer:
		on = r.Every && r.Prefix == ""
	}
	if need.Any {
		return on && need.Grants&r.Grants != 0
	}
	return on && need.Grants&^r.Grants == 0
}

// Of many keys in one message each is looked at, on a stream too; and the default namespace
// is one like others.
func TestMixedKeys(t *testing.T) {
	k := openGuarded(t)
	_, key := k.key(keyring.Wish{Grants: []string{"all:n/in:*"}})
	ctx := k.as(key)
	refused := func(err error, want codes.Code) {
		t.Helper()
		if status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	_, err := k.AddBatch(ctx, &pb.AddBatchRequest{Namespace: "n", Events: []*pb.Event{{Key: "in:1", Delta: 1}, {Key: "out", Delta: 1}}})
	refused(err, codes.PermissionDenied)
	_, err = k.AddBatch(ctx, &pb.AddBatchRequest{Namespace: "n", Events: []*pb.Event{{Key: "in:1", Delta: 1}}})
	refused(err, codes.OK)
	_, err = k.GetBatch(ctx, &pb.GetBatchRequest{Namespace: "n", Keys: []string{"in:1", "out"}})
	refused(err, codes.PermissionDenied)
	_, err = k.GetBatch(ctx, &pb.GetBatchRequest{}) // as clients greet a server
	refused(err, codes.OK)
	_, err = k.GetBatch(k.ctx, &pb.GetBatchRequest{})
	refused(err, codes.Unauthenticated)
	_, err = k.Add(ctx, &pb.AddRequest{Key: "in:1", Delta: 1})
	refused(err, codes.PermissionDenied)
	_, err = k.List(ctx, &pb.ListRequest{Namespace: "n", Prefix: "in"})
	refused(err, codes.PermissionDenied)
	_, err = k.List(ctx, &pb.ListRequest{Namespace: "n", Prefix: "in:"})
	refused(err, codes.OK)
	_, err = k.Range(ctx, &pb.RangeRequest{Namespace: "n", Key: "in", Prefix: true})
	refused(err, codes.PermissionDenied)

	s, err := k.Write(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := k.Enlist(ctx, &pb.EnlistRequest{})
	if err != nil {
		t.Fatal(err)
	}
	send := func(seq uint64, keys ...string) error {
		r := &pb.WriteRequest{Writer: w.Writer, Prev: seq - 1, Seq: seq, Namespace: "n", Keys: keys, Deltas: make([]int64, len(keys))}
		if err := s.Send(r); err != nil {
			return err
		}
		_, err := s.Recv()
		return err
	}
	refused(send(1, "in:1"), codes.OK)
	refused(send(2, "in:1", "out"), codes.PermissionDenied)
}

// A key that is revoked ends with the next message, on a stream too.
func TestKeysEnd(t *testing.T) {
	k := openGuarded(t)
	id, key := k.key(keyring.Wish{Grants: []string{"all:n"}})
	s, err := k.Write(k.as(key))
	if err != nil {
		t.Fatal(err)
	}
	w, err := k.Enlist(k.as(key), &pb.EnlistRequest{})
	if err != nil {
		t.Fatal(err)
	}
	send := func(seq uint64) error {
		if err := s.Send(&pb.WriteRequest{Writer: w.Writer, Prev: seq - 1, Seq: seq, Namespace: "n", Keys: []string{"a"}, Deltas: []int64{1}}); err != nil {
			return err
		}
		_, err := s.Recv()
		return err
	}
	if err := send(1); err != nil {
		t.Fatal(err)
	}
	if _, err := k.ring.Revoke(k.ctx, id, func(*access.Roll, *access.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := send(2); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a batch with a key that was revoked: %v", err)
	}
	if _, err := k.Get(k.as(key), &pb.GetRequest{Namespace: "n", Key: "a"}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with a key that was revoked: %v", err)
	}
}

// A quota refuses what is over it as what may be tried again.
func TestQuota(t *testing.T) {
	k := openGuarded(t)
	_, key := k.key(keyring.Wish{Grants: []string{"all:n"}, Quota: access.Quota{Writes: 2}})
	_, err := k.AddBatch(k.as(key), &pb.AddBatchRequest{Namespace: "n", Events: []*pb.Event{{Key: "a"}, {Key: "b"}, {Key: "c"}}})
	k.fails(err, codes.ResourceExhausted, pb.Kind_KIND_UNAVAILABLE)
	if _, err := k.Get(k.as(key), &pb.GetRequest{Namespace: "n", Key: "a"}); err != nil {
		t.Error(err)
	}
}

// What administrators do is in the audit log.
func TestAudit(t *testing.T) {
	k := openGuarded(t)
	_, key := k.key(keyring.Wish{Name: "w", Grants: []string{"write:n"}})
	if _, err := k.Verify(k.as("root"), &pb.VerifyRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Define(k.as(key), &pb.DefineRequest{Namespace: "n"}); status.Code(err) != codes.PermissionDenied {
		t.Fatal(err)
	}
	acts := k.gate.Acts(10)
	if len(acts) != 2 || acts[0].Who != "w" || acts[0].Outcome != "denied" || acts[0].Target != "n" || acts[1].Act != "quipu.v1.Quipu/Verify" || acts[1].Outcome != "done" {
		t.Errorf("acts %+v", acts)
	}
}
