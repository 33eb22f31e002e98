#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *c;

static void integer(long long want, const char *command) {
	redisReply *r = redisCommand(c, command);
	if (r == NULL || r->type != REDIS_REPLY_INTEGER || r->integer != want) {
		fprintf(stderr, "%s: type %d, %lld %s\n", command, r ? r->type : -1, r ? r->integer : 0, r && r->str ? r->str : "");
		exit(1);
	}
	freeReplyObject(r);
}

static void text(const char *want, const char *command) {
	redisReply *r = redisCommand(c, command);
	if (r == NULL || r->str == NULL || strcmp(r->str, want) != 0) {
		fprintf(stderr, "%s: %s\n", command, r && r->str ? r->str : "no string");
		exit(1);
	}
	freeReplyObject(r);
}

int main(int argc, char **argv) {
	char *port = argc > 1 ? strchr(argv[1], ':') : NULL;
	if (port == NULL)
		return 2;
	*port++ = 0;
	c = redisConnect(argv[1], atoi(port));
	if (c == NULL || c->err)
		return 3;
	text("OK", "FLUSHALL");
	integer(1, "INCR a");
	integer(42, "INCRBY a 41");
	text("42", "GET a");
	text("OK", "SET b 7 EX 100");
	integer(100, "TTL b");
	text("OK", "SET t text");
	text("text", "GET t");
	text("ERR value is not an integer or out of range", "INCR t");
	for (int i = 0; i < 1000; i++)
		redisAppendCommand(c, "INCR p");
	for (long long i = 1; i <= 1000; i++) {
		redisReply *r;
		if (redisGetReply(c, (void **)&r) != REDIS_OK || r->integer != i) {
			fprintf(stderr, "pipeline: reply %lld is %lld\n", i, r ? r->integer : -1);
			return 4;
		}
		freeReplyObject(r);
	}
	integer(43, "Q.ADD a 1 ID hiredis");
	integer(43, "Q.ADD a 1 ID hiredis");
	redisFree(c);
	return 0;
}
