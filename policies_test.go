package quipu_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store/memstore"
)

func TestPolicyOf(t *testing.T) {
	policies := []quipu.Policy{
		{Namespace: "ads", Pattern: "view:*", Durability: quipu.Memory},
		{Pattern: "view:home", Durability: quipu.Written},
		{Pattern: "view:*", Timing: quipu.Rollup},
		{Namespace: "shop", Pattern: "*", Single: true},
	}
	db := quipu.New(newStub(), quipu.Options{Policies: policies})
	f := func(namespace, key string, want int) {
		t.Helper()
		p, i := db.In(namespace).PolicyOf(key)
		effective := quipu.Policy{Pattern: "*"}.Effective()
		if want >= 0 {
			effective = policies[want].Effective()
		}
		if i != want || p != effective {
			t.Errorf("%s/%s has %s, %d; want %s, %d", namespace, key, p, i, effective, want)
		}
		first := slices.IndexFunc(policies, func(p quipu.Policy) bool { return p.Names(namespace, key) })
		if first != want {
			t.Errorf("%s/%s is named by %d, want %d", namespace, key, first, want)
		}
	}
	f("default", "view:home", 1)
	f("default", "view:home2", 2)
	f("default", "view:", 2)
	f("default", "view", -1)
	f("default", "view:*", 2)
	f("ads", "view:home", 0)
	f("ads", "other", -1)
	f("shop", "view:home", 1)
	f("shop", "other", 3)
	f("shop", "", 3)
}

// Policies are replaced for all views at once, those made before too.
func TestSetPolicies(t *testing.T) {
	s := newStub()
	sent := s.record()
	db := quipu.New(s, quipu.Options{})
	other := db.In("other")
	f := func(view *quipu.DB, want quipu.Durability) {
		t.Helper()
		*sent = nil
		ctx := t.Context()
		if _, err := view.Add(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := view.AddBatch(ctx, []quipu.Event{{Key: "k", Delta: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, b := range *sent {
			if b.Durability != want {
				t.Errorf("a batch is %s, want %s", b.Durability, want)
			}
		}
	}
	set := func(policies ...quipu.Policy) {
		t.Helper()
		given := slices.Clone(policies)
		if err := db.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		clear(policies) // they are the caller's
		got := db.Policies()
		if !slices.Equal(got, given) {
			t.Errorf("policies are %v, want %v", got, given)
		}
		clear(got)
		if got := db.Policies(); !slices.Equal(got, given) {
			t.Errorf("policies are %v, want %v", got, given)
		}
	}
	f(db, quipu.Synced)
	set(quipu.Policy{Pattern: "k", Durability: quipu.Memory})
	f(db, quipu.Memory)
	f(other, quipu.Memory)
	set(quipu.Policy{Namespace: "other", Pattern: "*", Durability: quipu.Written}, quipu.Policy{Pattern: "k", Durability: quipu.Memory})
	f(db, quipu.Memory)
	f(other, quipu.Written)
	if err := other.SetPolicies([]quipu.Policy{{Pattern: "a"}, {Pattern: "a*b"}}); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("an invalid policy: %v", err)
	}
	f(other, quipu.Written)
	set()
	f(db, quipu.Synced)
	f(other, quipu.Synced)

	broken := quipu.New(newStub(), quipu.Options{Memory: -1})
	if err := broken.SetPolicies(nil); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("with invalid options: %v", err)
	}
}

// Nothing is lost while policies are replaced, and every call goes by those of
// one moment.
func TestSetPoliciesConcurrently(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	sets := [][]quipu.Policy{
		nil,
		{{Pattern: "a", Durability: quipu.Written}, {Pattern: "b", Durability: quipu.Memory}},
		{{Pattern: "*", Durability: quipu.Synced}},
	}
	const rounds = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			if err := db.SetPolicies(sets[i%len(sets)]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for range rounds {
				rs, err := db.AddBatch(t.Context(), []quipu.Event{{Key: "a", Delta: 1}, {Key: "b", Delta: 1}})
				if err != nil || rs[0].Err != nil || rs[1].Err != nil {
					t.Error(err, rs)
				}
				if p, i := db.PolicyOf("a"); p.Durability < quipu.Written || i > 0 {
					t.Errorf("a has %s, %d", p, i)
				}
			}
		})
	}
	wg.Wait()
	for _, key := range []string{"a", "b"} {
		if c, err := db.Read(t.Context(), key); err != nil || c.Value != 4*rounds {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
	}
}
