import assert from 'node:assert';
import { createClient, BasicClientSideCache, BasicPooledClientSideCache, createClientPool } from 'redis';

const url = `redis://${process.argv[2]}`;
const writer = createClient({ url });
await writer.connect();

// until waits until a read returns what it must, which it does once the cache was told:
// what is kept is returned without looking at the connection.
async function until(read, want) {
  for (const end = Date.now() + 30000; (await read()) !== want; ) {
    assert.ok(Date.now() < end, `not ${want}`);
    await new Promise((done) => setImmediate(done));
  }
}

const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 100, recordStats: true });
const pooled = new BasicPooledClientSideCache({ ttl: 0, maxEntries: 100, recordStats: true });
const one = createClient({ url, RESP: 3, clientSideCache: cache });
const pool = createClientPool({ url, RESP: 3 }, { clientSideCache: pooled, minimum: 2 });
for (const [reader, kept] of [[one, cache], [pool, pooled]]) {
  await reader.connect();
  await writer.flushAll();
  for (let i = 1; i < 20; i++) {
    await writer.incr('a');
    await until(() => reader.get('a'), `${i}`);
    assert.equal(await reader.get('a'), `${i}`);
  }
  const hits = kept.stats().hitCount;
  for (let i = 0; i < 10; i++) await reader.get('a');
  assert.ok(kept.stats().hitCount >= hits + 10, 'nothing was kept');
  await writer.pExpire('a', 300);
  await until(() => reader.get('a'), null);
  await writer.set('a', 7);
  await until(() => reader.get('a'), '7');
  await writer.flushDb();
  await until(() => reader.get('a'), null);
  await reader.close();
}
await writer.close();
