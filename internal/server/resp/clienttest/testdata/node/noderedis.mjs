import assert from 'node:assert';
import { createClient } from 'redis';

for (const RESP of [2, 3]) {
  const redis = createClient({ url: `redis://${process.argv[2]}`, RESP });
  await redis.connect();
  await redis.flushAll();
  assert.equal(await redis.incr('a'), 1);
  assert.equal(await redis.incrBy('a', 41), 42);
  assert.equal(await redis.get('a'), '42');
  assert.equal(await redis.set('b', 7, { expiration: { type: 'EX', value: 100 }, condition: 'NX' }), 'OK');
  assert.equal(await redis.ttl('b'), 100);
  assert.deepEqual(await redis.mGet(['a', 'b', 'none']), ['42', '7', null]);
  assert.deepEqual(await redis.multi().incr('a').expire('a', 10).exec(), [43, 1]);
  assert.deepEqual(await Promise.all([redis.incr('a'), redis.incr('a'), redis.get('a')]), [44, 45, '45']);
  const found = [];
  for await (const keys of redis.scanIterator()) found.push(...keys);
  assert.deepEqual(found.sort(), ['a', 'b']);
  assert.equal(await redis.sendCommand(['Q.ADD', 'a', '1', 'ID', `t${RESP}`]), 46);
  assert.equal(await redis.sendCommand(['Q.ADD', 'a', '1', 'ID', `t${RESP}`]), 46);
  assert.equal(await redis.set('t', 'text'), 'OK');
  assert.equal(await redis.get('t'), 'text');
  await assert.rejects(redis.incr('t'), /not an integer/);
  await redis.close();
}
