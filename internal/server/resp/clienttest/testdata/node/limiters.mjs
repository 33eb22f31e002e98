import assert from 'node:assert';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import Redlock from 'redlock';

const [host, port] = process.argv[2].split(':');
const ioredis = new Redis({ host, port: Number(port), maxRetriesPerRequest: 1 });
const redis = createClient({ url: `redis://${process.argv[2]}` });
await redis.connect();
await redis.flushAll();

// rate-limit-redis, as express-rate-limit calls it.
const store = new RedisStore({ sendCommand: (...args) => redis.sendCommand(args) });
store.init({ windowMs: 100000 });
const hits = await Promise.all(Array.from({ length: 20 }, () => store.increment('user')));
assert.deepEqual(hits.map((h) => h.totalHits).sort((a, b) => a - b), Array.from({ length: 20 }, (_, i) => i + 1));
assert.ok(hits.every((h) => h.resetTime > new Date()));
await store.decrement('user');
assert.equal((await store.get('user')).totalHits, 19);
await store.resetKey('user');
assert.equal((await store.increment('user')).totalHits, 1);
await redis.sendCommand(['SCRIPT', 'FLUSH']); // It loads its scripts again.
assert.equal((await store.increment('user')).totalHits, 2);

// rate-limiter-flexible, over either client.
for (const [name, options] of [['io', { storeClient: ioredis }], ['node', { storeClient: redis, useRedisPackage: true }]]) {
  const limiter = new RateLimiterRedis({ ...options, keyPrefix: name, points: 10, duration: 100, blockDuration: 1000 });
  const answers = await Promise.allSettled(Array.from({ length: 30 }, () => limiter.consume('user')));
  const allowed = answers.filter((a) => a.status === 'fulfilled');
  assert.equal(allowed.length, 10, name);
  for (const a of answers) assert.ok(a.status === 'fulfilled' || !(a.reason instanceof Error), a.reason);
  assert.ok((await limiter.get('user')).msBeforeNext > 100000, 'it is blocked for longer');
  assert.equal((await limiter.penalty('other', 3)).consumedPoints, 3);
  assert.equal((await limiter.reward('other', 1)).consumedPoints, 2);
  assert.equal((await limiter.set('other', 7, 50)).consumedPoints, 7);
  assert.equal((await limiter.get('other')).remainingPoints, 3);
  assert.equal(await limiter.delete('other'), true);
  assert.equal(await limiter.get('other'), null);
}

// redlock.
const locks = new Redlock([ioredis], { retryCount: 1000, retryDelay: 2, retryJitter: 2 });
let inside = 0;
let count = 0;
await Promise.all(Array.from({ length: 5 }, async () => {
  for (let i = 0; i < 4; i++) {
    let lock = await locks.lock('lock', 30000);
    assert.equal(++inside, 1, 'two have the lock');
    lock = await lock.extend(60000);
    count++;
    inside--;
    await lock.unlock();
  }
}));
assert.equal(count, 20);
const held = await locks.lock(['lock:a', 'lock:b'], 30000);
await assert.rejects(new Redlock([ioredis], { retryCount: 0 }).lock('lock:b', 1000), { name: 'LockError' });
await held.unlock();
assert.equal(await ioredis.exists('lock:a', 'lock:b'), 0);

await redis.close();
await ioredis.quit();
