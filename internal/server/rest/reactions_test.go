package rest_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

// TestReactions has users choose over HTTP.
func TestReactions(t *testing.T) {
	f := openOver(t, newMemory(), rest.Options{})
	f.do("PUT", "/api/v1/definitions", `{"definitions":[{"pattern":"post:*","choices":["like","dislike"]},{"pattern":"view:*","once":"1d"}]}`, "If-Match: *").want(t, 200)
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"like"}`).want(t, 200, "choice=like", "before=", "changed=true")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"like"}`).want(t, 200, "choice=like", "before=like", "changed=false")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"dislike"}`, "Idempotency-Key: k").want(t, 200, "before=like", "replayed=false")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"dislike"}`, "Idempotency-Key: k").want(t, 200, "before=like", "replayed=true")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"like"}`, "Idempotency-Key: k").want(t, 422)
	f.do("GET", "/api/v1/counters/post:1", "").want(t, 200, "value=1")
	f.do("GET", "/api/v1/reactions/post:1", "").want(t, 200, "users=1")

	// Users and keys are whatever their names are.
	f.do("PUT", "/api/v1/reactions/post:1/%2E%2E%2Fread", `{"choice":"like"}`).want(t, 200, "user=../read", "changed=true")
	f.do("GET", "/api/v1/reactions/post:1/read", "").want(t, 200, "choice=")

	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"love"}`).want(t, 400, "kind=invalid")
	f.do("PUT", "/api/v1/reactions/other/ana", `{"choice":"like"}`).want(t, 400, "kind=invalid")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choices":"like"}`).want(t, 400, "kind=invalid")
	f.do("PUT", "/api/v1/reactions/post:1/ana", `{"choice":"like"}`, `If-Match: "1"`).want(t, 400, "kind=invalid")
	f.do("DELETE", "/api/v1/reactions/post:1/ana", `{"choice":"like"}`).want(t, 400)
	f.do("POST", "/api/v1/counters/post:1/increment", "").want(t, 400, "kind=invalid")

	f.do("POST", "/api/v1/counters/view:1/increment", `{"who":"ana"}`).want(t, 200, "applied=1", "value=1")
	f.do("POST", "/api/v1/counters/view:1/increment", `{"who":"ana"}`).want(t, 200, "applied=0", "value=1", "duplicate=true")
	f.do("POST", "/api/v1/counters/view:1/increment", "").want(t, 400, "kind=invalid")
}
