import sys

import redis

host, port = sys.argv[1].split(":")
r = redis.Redis(host=host, port=int(port), decode_responses=True)
r.flushall()
assert r.ping()
assert r.incr("a") == 1
assert r.incrby("a", 41) == 42
assert r.get("a") == "42"
assert r.set("b", 7, ex=100, nx=True) is True
assert r.set("b", 8, nx=True) is None
assert r.ttl("b") == 100
assert r.mget("a", "b", "none") == ["42", "7", None]
with r.pipeline(transaction=False) as p:
    assert p.incr("a").incr("a").get("a").execute() == [43, 44, "44"]
with r.pipeline() as p:
    assert p.incr("a").expire("a", 10).execute() == [45, True]
with r.pipeline() as p:
    p.watch("a")
    r.incr("a")
    p.multi()
    p.incr("a")
    try:
        p.execute()
        raise AssertionError("the transaction should have failed")
    except redis.WatchError:
        pass
assert sorted(r.scan_iter()) == ["a", "b"]
assert r.info()["role"] == "master"
assert r.config_get("save") == {"save": ""}
assert r.client_setname("me") and r.client_getname() == "me"
assert r.execute_command("Q.ADD", "a", 1, "ID", "python") == 47
assert r.execute_command("Q.ADD", "a", 1, "ID", "python") == 47
assert r.set("t", "text") and r.get("t") == "text"
try:
    r.incr("t")
    raise AssertionError("INCR of text should have been refused")
except redis.ResponseError as e:
    assert "not an integer" in str(e)
