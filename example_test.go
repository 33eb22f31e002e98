//nolint:errcheck // examples are as short as what readers write
package quipu_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store/memstore"
)

// open returns a DB that keeps nothing; programs call quipu.Open.
func open() *quipu.DB {
	return quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
}

func Example() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	if _, err := db.Add(ctx, "likes:post:42", 1); err != nil {
		log.Fatal(err)
	}
	count, err := db.Read(ctx, "likes:post:42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count.Value, count.Exact)
	// Output: 1 true
}

// A write with a token may be sent again after any failure: it counts once.
func ExampleDB_Add_retry() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	for range 3 {
		receipt, err := db.Add(ctx, "orders", 1, quipu.Token("order-1001"), quipu.WantValue())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipt.Value, receipt.Replayed)
	}
	_, err := db.Add(ctx, "orders", 2, quipu.Token("order-1001"), quipu.WantValue())
	fmt.Println(err)
	// Output:
	// 1 false
	// 1 true
	// 1 true
	// quipu: the token was used for another payload: first it was to add 1, now it is to add 2
}

// The value that a write asks for is exact and no other call gets it, so it can
// serve as an id.
func ExampleWantValue() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	for range 2 {
		receipt, err := db.Add(ctx, "invoice-number", 1, quipu.WantValue())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("invoice", receipt.Value)
	}
	// Output:
	// invoice 1
	// invoice 2
}

// Each event is decided by itself.
func ExampleDB_AddBatch() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	receipts, err := db.AddBatch(ctx, []quipu.Event{
		{Key: "views:home", Delta: 1},
		{Key: "", Delta: 1},
		{Key: "views:home", Delta: 2, WantValue: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range receipts {
		fmt.Println(r.Applied, r.Value, r.Err)
	}
	// Output:
	// 1 0 <nil>
	// 0 0 quipu: key is empty
	// 2 3 <nil>
}

// Reset with WantValue takes what was counted since the last time.
func ExampleDB_Reset() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	if _, err := db.Add(ctx, "to-bill", 12); err != nil {
		log.Fatal(err)
	}
	receipt, err := db.Reset(ctx, "to-bill", quipu.WantValue())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("bill", receipt.Before)
	// Output: bill 12
}

// A counter that changed since it was read is left alone.
func ExampleIfVersion() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	stock, err := db.Read(ctx, "stock")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Add(ctx, "stock", 5); err != nil {
		log.Fatal(err)
	}
	_, err = db.Set(ctx, "stock", 100, quipu.IfVersion(stock.Version))
	fmt.Println(errors.Is(err, quipu.ErrChanged))
	// Output: true
}

// Settle decides a write whose answer never came.
func ExampleDB_Settle() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	fate, err := db.Settle(ctx, "orders", "order-1002")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fate.State)
	_, err = db.Add(ctx, "orders", 1, quipu.Token("order-1002")) // too late
	fmt.Println(err)
	// Output:
	// settled
	// quipu: the token was settled before its write arrived
}

func ExampleDB_List() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	for _, key := range []string{"likes:1", "likes:2", "likes:3", "views:1"} {
		if _, err := db.Add(ctx, key, 1); err != nil {
			log.Fatal(err)
		}
	}
	for o := (quipu.ListOptions{Limit: 2}); ; {
		page, err := db.List(ctx, "likes:", o)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range page.Counts {
			fmt.Println(c.Key, c.Value)
		}
		if page.Next == "" {
			break
		}
		o.Cursor = page.Next
	}
	// Output:
	// likes:1 1
	// likes:2 1
	// likes:3 1
}

// A reader that must see its own write hands on the session of the receipt,
// perhaps through a cookie.
func ExampleSession() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	receipt, err := db.Add(ctx, "likes", 1)
	if err != nil {
		log.Fatal(err)
	}
	count, err := db.Read(ctx, "likes", quipu.Session(receipt.Session()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count.Value)
	// Output: 1
}

func ExampleDB_In() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	if _, err := db.In("shop").Add(ctx, "orders", 3); err != nil {
		log.Fatal(err)
	}
	here, err := db.Read(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	there, err := db.In("shop").Read(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(here.Value, there.Value)
	// Output: 0 3
}

// A filter tells of millions of items whether they were there, in a byte or two for each. The token makes a retry add
// nothing.
func ExampleDB_AddItems() {
	ctx := context.Background()
	db := open()
	defer db.Close()

	if _, err := db.MakeSketch(ctx, "seen", call.Shape{Kind: call.SketchFilter, Capacity: 100_000, Error: 0.01}); err != nil {
		log.Fatal(err)
	}
	added, err := db.AddItems(ctx, "seen", []call.Item{{Item: "ana"}, {Item: "bob"}, {Item: "ana"}}, quipu.Token("visit-1"))
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range added.Items {
		fmt.Println(item.Item, item.Added)
	}
	asked, err := db.AskItems(ctx, "seen", "ana", "eve")
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range asked.Items {
		fmt.Println(item.Item, item.Found)
	}
	// Output:
	// ana true
	// bob true
	// ana false
	// ana true
	// eve false
}

// Page views may be lost in a crash if that makes them faster; stock may not.
func ExamplePolicy() {
	options := quipu.Options{Policies: []quipu.Policy{
		{Pattern: "views:*", Durability: quipu.Memory},
		{Namespace: "shop", Pattern: "stock:*", Durability: quipu.Synced},
	}}
	fmt.Println(options.Validate())
	// Output: <nil>
}
