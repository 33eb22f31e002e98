import assert from 'node:assert';
import Bottleneck from 'bottleneck';
import { Redis } from 'ioredis';
import redis3 from 'redis3';

const [host, port] = process.argv[2].split(':');
const clientOptions = { host, port: Number(port) };
const plain = new Redis(clientOptions);
await plain.flushall();

const kinds = { ioredis: Redis, redis: redis3 };
const failed = (error) => { throw error; };

// cluster returns limiters that share an id, each with connections of its own, as in several processes.
async function cluster(datastore, n, options) {
  const all = [];
  for (let i = 0; i < n; i++) { // The first one clears what there was, and so comes alone.
    const limiter = new Bottleneck({ ...options, datastore, Redis: kinds[datastore], clientOptions, clearDatastore: i === 0, timeout: 60000 });
    limiter.on('error', failed);
    await limiter.ready();
    all.push(limiter);
  }
  return all;
}

for (const datastore of ['ioredis', 'redis']) {
  // Of all limiters together no more run at a time.
  let limiters = await cluster(datastore, 3, { id: `concurrent-${datastore}`, maxConcurrent: 2 });
  let inside = 0;
  let most = 0;
  const job = async (i) => {
    most = Math.max(most, ++inside);
    await plain.ping();
    inside--;
    return i;
  };
  let done = await Promise.all(Array.from({ length: 30 }, (_, i) => limiters[i % 3].schedule(() => job(i))));
  assert.deepEqual(done, Array.from({ length: 30 }, (_, i) => i));
  assert.ok(most <= 2, `${most} ran at a time`);
  assert.equal(await limiters[0].done(), 30);
  assert.equal(await limiters[1].running(), 0);
  assert.equal(await limiters[2].clusterQueued(), 0);

  // Messages reach all.
  const heard = Promise.all(limiters.map((limiter) => new Promise((resolve) => { limiter.on('message', resolve); })));
  await limiters[1].publish('hello');
  assert.deepEqual(await heard, ['hello', 'hello', 'hello']);

  // Settings that one changes hold for all.
  await limiters[0].updateSettings({ maxConcurrent: 1 });
  most = 0;
  await Promise.all(Array.from({ length: 9 }, (_, i) => limiters[i % 3].schedule(() => job(i))));
  assert.equal(most, 1);
  await assert.rejects(limiters[2].schedule({ weight: 5 }, () => job(0)), /OVERWEIGHT:5:1/);
  for (const limiter of limiters) await limiter.disconnect();

  // Two of them begin at least so far apart.
  limiters = await cluster(datastore, 2, { id: `paced-${datastore}`, minTime: 50 });
  const began = [];
  await Promise.all(Array.from({ length: 8 }, (_, i) => limiters[i % 2].schedule(async () => { began.push(Date.now()); })));
  began.sort((a, b) => a - b);
  assert.ok(began[7] - began[0] >= 7 * 50 - 25, `8 jobs began within ${began[7] - began[0]} ms`);
  for (const limiter of limiters) await limiter.disconnect();

  // A reservoir is used up together, and refilled: those who wait are told.
  limiters = await cluster(datastore, 3, { id: `reservoir-${datastore}`, reservoir: 5 });
  let ran = 0;
  const waiting = Array.from({ length: 12 }, (_, i) => limiters[i % 3].schedule(async () => { ran++; }));
  while (await limiters[0].currentReservoir() > 0) await plain.ping();
  await Promise.all(limiters.map((limiter) => limiter.check()));
  assert.ok(ran <= 5, `${ran} ran on a reservoir of 5`);
  assert.equal(await limiters[1].incrementReservoir(7), 7);
  await Promise.all(waiting);
  assert.equal(ran, 12);
  assert.equal(await limiters[2].currentReservoir(), 0);
  for (const limiter of limiters) await limiter.disconnect();

  // And by itself, with jobs that expire.
  limiters = await cluster(datastore, 2, { id: `refreshed-${datastore}`, reservoir: 1, reservoirRefreshInterval: 250, reservoirRefreshAmount: 2, heartbeatInterval: 50 });
  await Promise.all(Array.from({ length: 5 }, (_, i) => limiters[i % 2].schedule(async () => i)));
  for (const limiter of limiters) await limiter.disconnect();
  limiters = await cluster(datastore, 1, { id: `expiring-${datastore}`, maxConcurrent: 1 });
  const stuck = limiters[0].schedule({ expiration: 50 }, () => new Promise(() => {}));
  await assert.rejects(stuck, /timed out/);
  assert.equal(await limiters[0].schedule(async () => 'next'), 'next');
  for (const limiter of limiters) await limiter.disconnect();

  // A group has a limiter for each key.
  const group = new Bottleneck.Group({ datastore, Redis: kinds[datastore], clientOptions, id: `group-${datastore}`, maxConcurrent: 1, timeout: 60000, clearDatastore: true });
  group.on('error', failed);
  done = await Promise.all(Array.from({ length: 12 }, (_, i) => group.key(`user${i % 4}`).schedule(async () => i)));
  assert.equal(done.length, 12);
  assert.deepEqual((await group.clusterKeys()).sort(), ['user0', 'user1', 'user2', 'user3']);
  assert.equal(await group.deleteKey('user0'), true);
  await group.disconnect();
}

// One connection for several limiters.
const connection = new Bottleneck.IORedisConnection({ client: new Redis(clientOptions) });
connection.on('error', failed);
const shared = ['a', 'b'].map((id) => new Bottleneck({ id, connection, maxConcurrent: 1, timeout: 60000 }));
const done = await Promise.all(Array.from({ length: 10 }, (_, i) => shared[i % 2].schedule(async () => i)));
assert.equal(done.length, 10);
await connection.disconnect();

assert.equal(await plain.type('b_concurrent-ioredis_settings'), 'hash');
assert.equal(await plain.type('b_concurrent-ioredis_client_last_seen'), 'zset');
assert.ok(await plain.pttl('b_concurrent-ioredis_settings') > 0);
await plain.quit();
