import assert from 'node:assert';
import { createClient } from 'redis';

for (const RESP of [2, 3]) {
  const redis = createClient({ url: `redis://${process.argv[2]}`, RESP });
  await redis.connect();
  await redis.flushAll();

  assert.equal(await redis.pfAdd('u', ['a', 'b', 'a']), 1);
  assert.equal(await redis.pfAdd('u', 'a'), 0);
  assert.equal(await redis.pfAdd('v', ['b', 'c']), 1);
  assert.equal(await redis.pfCount('u'), 2);
  assert.equal(await redis.pfCount(['u', 'v']), 3);
  assert.equal(await redis.pfMerge('w', ['u', 'v']), 'OK');
  assert.equal(await redis.pfCount('w'), 3);
  await assert.rejects(redis.get('u'), /^Error: WRONGTYPE|WRONGTYPE/);

  assert.equal(await redis.bf.reserve('b', 0.01, 1000), 'OK');
  await assert.rejects(redis.bf.reserve('b', 0.01, 1000), /item exists/);
  assert.equal(await redis.bf.add('b', 'x'), true);
  assert.equal(await redis.bf.add('b', 'x'), false);
  assert.deepEqual(await redis.bf.mAdd('b', ['x', 'y']), [false, true]);
  assert.equal(await redis.bf.exists('b', 'y'), true);
  assert.deepEqual(await redis.bf.mExists('b', ['y', 'z']), [true, false]);
  assert.equal(await redis.bf.card('b'), 2);
  assert.deepEqual(await redis.bf.insert('i', ['x', 'y'], { CAPACITY: 50, ERROR: 0.1, EXPANSION: 3 }), [true, true]);
  const info = await redis.bf.info('i');
  assert.deepEqual([info.Capacity, info['Number of filters'], info['Number of items inserted'], info['Expansion rate']], [50, 1, 2, 3]);
  assert.equal(await redis.type('b'), 'MBbloom--');

  assert.equal(await redis.cms.initByDim('c', 2000, 7), 'OK');
  assert.equal(await redis.cms.initByProb('p', 0.001, 0.01), 'OK');
  assert.deepEqual(await redis.cms.incrBy('c', [{ item: 'x', incrementBy: 5 }, { item: 'y', incrementBy: 1 }]), [5, 1]);
  assert.deepEqual(await redis.cms.query('c', ['y', 'x', 'z']), [1, 5, 0]);
  assert.equal(await redis.cms.merge('p', [{ name: 'c', weight: 2 }, { name: 'p', weight: 1 }]), 'OK');
  assert.deepEqual(await redis.cms.query('p', ['x']), [10]);
  assert.deepEqual({ ...(await redis.cms.info('c')) }, { width: 2000, depth: 7, count: 6 });
  await assert.rejects(redis.cms.query('none', 'x'), /CMS: key does not exist/);

  assert.equal(await redis.topK.reserve('t', 2), 'OK');
  assert.deepEqual(await redis.topK.add('t', ['x', 'y', 'x']), [null, null, null]);
  assert.deepEqual(await redis.topK.incrBy('t', [{ item: 'z', incrementBy: 9 }]), ['y']);
  assert.deepEqual(await redis.topK.query('t', ['x', 'y']), [true, false]);
  assert.deepEqual(await redis.topK.count('t', ['x', 'y', 'z']), [2, 1, 9]);
  assert.deepEqual(await redis.topK.list('t'), ['z', 'x']);
  assert.deepEqual((await redis.topK.listWithCount('t')).map((i) => [i.item, i.count]), [['z', 9], ['x', 2]]);
  assert.equal((await redis.topK.info('t')).k, 2);

  assert.deepEqual(await redis.multi().pfAdd('m', 'a').pfCount('m').bf.add('mb', 'a').exec(), [1, 1, true]);
  await redis.close();
}
